// Reads lists of calls of an image, as JSON from standard input, and writes what each call told, and what was shown at the
// end. tests/client/test_javascript.py makes the same calls of the image in Python.
import { Entry } from "../../../src/headway/client/javascript/entries.js";
import { Image } from "../../../src/headway/client/javascript/image.js";

let text = "";
for await (const piece of process.stdin) text += piece;
const utf8 = new TextEncoder();
const entry = (topic, key, offset, text) => new Entry(topic, key, utf8.encode(text), offset);
const CALLS = {
  put: (image, ...said) => image.put(entry(...said)),
  patch: (image, ...said) => image.patch(entry(...said)),
  gap: (image, records, reason, last) => image.gap({ records, reason, last }),
  proved: (image, offset, ageMs, last, at, now) => image.proved({ offset, ageMs, last }, at, now),
  out_of_focus: (image, ...said) => image.outOfFocus(...said),
};

function words(change) {
  const { type, topic, key, entry, before, why, records, reason, last, asOf } = change;
  const said = { put: [topic, key, entry?.offset, before?.offset ?? null], gap: [records, reason, last], current: [asOf] };
  return [type, ...(said[type] ?? (type === "stale" ? [why] : [topic, key, before.offset]))];
}

const worlds = JSON.parse(text).map((calls) => {
  const image = new Image(5000);
  const told = calls.map(([name, ...said]) => {
    const changes = CALLS[name] ? CALLS[name](image, ...said) : image[name](...said);
    return [...(changes ?? [])].map(words);
  });
  const shown = [...image.entries.of.values()].map((one) => [one.topic, one.key, one.offset, one.text()]);
  return { told, shown, offset: image.offset, wants: image.wantsSnapshot, whole: image.whole };
});
console.log(JSON.stringify(worlds));
