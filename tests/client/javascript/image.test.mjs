// The stories of tests/client/test_image.py, told to the image in JavaScript.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ChangeReader } from "../../../src/headway/client/javascript/changes.js";
import { makeClock } from "../../../src/headway/client/javascript/clock.js";
import { Entry } from "../../../src/headway/client/javascript/entries.js";
import { Image } from "../../../src/headway/client/javascript/image.js";

const LIMIT_MS = 5000;
const utf8 = new TextEncoder();
const entry = (key, offset, text = String(offset), topic = "t") => new Entry(topic, key, utf8.encode(text), offset);
const sent = (offset, ageMs = 0, last = offset) => ({ offset, ageMs, last });

/** A change in few words: `+a11`, `~a11` (over another one), `-a`, `oof a changed`, `gap 3`, `stale`, `current 10`. */
function word(change) {
  switch (change.type) {
    case "put": return `${change.before ? "~" : "+"}${change.key}${change.entry.text()}`;
    case "delete": return `-${change.key}`;
    case "out_of_focus": return `oof ${change.key} ${change.why}`;
    case "gap": return `gap ${change.records}`;
    case "stale": return `stale: ${change.why}`;
    case "current": return `current ${change.asOf}`;
  }
}

/** An image with the key a at offset 1, as of offset 10, at time 0. */
function opened() {
  const image = new Image(LIMIT_MS);
  image.begin();
  image.granted(10);
  assert.deepEqual(image.put(entry("a", 1)), []);
  assert.deepEqual(image.proved(sent(10), 0, 0).map(word), ["+a1", "current 10"]);
  return image;
}

const gap = (records, reason, last) => ({ records, reason, last });
const begin = (i) => i.begin() ?? [];
const resume = (i) => i.resume() ?? [];

const STORIES = [
  ["a new key", [(i) => i.put(entry("b", 11))], ["+b11"], { a: "1", b: "11" }],
  ["a change", [(i) => i.put(entry("a", 11))], ["~a11"], { a: "11" }],
  ["a repetition", [(i) => i.put(entry("a", 11)), (i) => i.put(entry("a", 11))], ["~a11"], { a: "11" }],
  ["a delete", [(i) => i.delete("t", "a", 11)], ["-a"], {}],
  ["a delete of nothing", [(i) => i.delete("t", "b", 11)], [], { a: "1" }],
  ["out of focus", [(i) => i.outOfFocus("t", "a", 11, "changed"), (i) => i.outOfFocus("t", "b", 12, "changed")],
    ["oof a changed"], {}],
  ["a conflated gap", [(i) => i.gap(gap(3, "conflated", 12)), (i) => i.put(entry("a", 13))], ["gap 3", "~a13"], { a: "13" }],
  ["a gap from before the snapshot", [(i) => i.gap(gap(3, "discarded", 10)), (i) => i.put(entry("b", 13))],
    ["gap 3", "+b13"], { a: "1", b: "13" }],
  ["after a gap nothing more is believed", [(i) => i.gap(gap(3, "discarded", 12)), (i) => i.put(entry("a", 13))],
    ["gap 3", "stale: records are missing (discarded)"], { a: "1" }],
  ["after a cut nothing more is believed", [(i) => i.cut("gone"), (i) => i.cut("gone"), (i) => i.put(entry("a", 13))],
    ["stale: gone"], { a: "1" }],
  ["half a snapshot is not seen", [(i) => i.cut("x"), begin, (i) => i.put(entry("b", 20))], ["stale: x"], { a: "1" }],
  ["a snapshot takes the place", [(i) => i.cut("x"), begin, (i) => i.put(entry("b", 20)), (i) => i.proved(sent(20), 1, 1)],
    ["stale: x", "-a", "+b20", "current 20"], { b: "20" }],
  ["a snapshot is whole when all changes since have come",
    [(i) => i.cut("x"), begin, (i) => i.proved(sent(20, 0, 22), 1, 1), (i) => i.put(entry("b", 22)),
      (i) => i.proved(sent(20, 0, 30), 2, 2)], ["stale: x", "-a", "+b22", "current 20"], { b: "22" }],
  ["only what is different is told",
    [(i) => i.cut("x"), begin, (i) => i.put(entry("a", 1)), (i) => i.put(entry("b", 2)), (i) => i.proved(sent(20), 1, 1)],
    ["stale: x", "+b2", "current 20"], { a: "1", b: "2" }],
  ["offsets of another life", [(i) => i.cut("x"), begin, (i) => i.put(entry("a", 1, "o")), (i) => i.proved(sent(3), 1, 1)],
    ["stale: x", "~ao", "current 3"], { a: "o" }],
  ["a cut in a snapshot", [(i) => i.cut("x"), begin, (i) => i.put(entry("b", 20)), (i) => i.cut("y"),
    (i) => i.proved(sent(20), 1, 1)], ["stale: x"], { a: "1" }],
  ["resumption", [(i) => i.cut("x"), resume, (i) => i.put(entry("a", 10)), (i) => i.put(entry("b", 20)), (i) => i.look(1),
    (i) => i.proved(sent(20), 1, 1)], ["stale: x", "+b20", "current 20"], { a: "1", b: "20" }],
  ["a gap in a resumption is not told",
    [(i) => i.cut("x"), resume, (i) => i.gap(gap(0, "not_retained", 19)), begin, (i) => i.put(entry("a", 20)),
      (i) => i.proved(sent(20), 1, 1)], ["stale: x", "~a20", "current 20"], { a: "20" }],
  ["nor is one that harms nothing",
    [(i) => i.cut("x"), resume, (i) => i.gap(gap(3, "conflated", 19)), (i) => i.put(entry("a", 20)),
      (i) => i.proved(sent(20), 1, 1)], ["stale: x", "~a20", "current 20"], { a: "20" }],
  ["resumption never goes back", [(i) => i.put(entry("a", 15)), (i) => i.cut("x"), resume, (i) => i.put(entry("a", 12))],
    ["~a15", "stale: x"], { a: "15" }],
  ["time", [(i) => i.look(5000), (i) => i.look(5100), (i) => i.look(5200), (i) => i.proved(sent(10), 5200, 5300)],
    ["stale: the broker has not confirmed it for 5 s", "current 10"], { a: "1" }],
  ["what waits in the broker is old", [(i) => i.proved(sent(10, 6000, 12), 10000, 10100)],
    ["stale: the broker has not confirmed it for 5 s"], { a: "1" }],
];

for (const [name, steps, told, shown] of STORIES) {
  test(name, () => {
    const image = opened();
    assert.deepEqual(steps.flatMap((step) => [...step(image)]).map(word), told);
    const found = Object.fromEntries([...image.entries.of.values()].map((one) => [one.key, one.text()]));
    assert.deepEqual(found, shown);
  });
}

test("a key of several topics has to be named with its topic", () => {
  const image = opened();
  image.put(entry("a", 11, "11", "other"));
  assert.throws(() => image.entries.find("a"), /"a" is a key of 2 topics/);
  assert.equal(image.entries.find("a", "other").offset, 11);
  image.delete("t", "a", 12);
  assert.equal(image.entries.find("a").offset, 11);
  image.delete("other", "a", 13);
  assert.equal(image.entries.find("a"), undefined);
});

// -- readers ----------------------------------------------------------------------------------------------------------

test("a slow reader gets the latest change of each key, and what has undone itself not at all", async () => {
  const image = opened(), reader = new ChangeReader(() => {});
  for (const changes of [
    image.put(entry("b", 11)), image.put(entry("a", 12)), image.gap(gap(3, "conflated", 12)), image.put(entry("b", 13)),
    image.delete("t", "b", 14), image.put(entry("c", 15)), image.gap(gap(4, "conflated", 15)), image.delete("t", "a", 16),
    image.cut("x"), image.begin() ?? [], image.put(entry("c", 15)), image.proved(sent(20), 1, 1), image.put(entry("a", 21)),
  ]) reader.add(changes);
  assert.deepEqual((await reader.some()).map(word), ["~a21", "gap 7", "+c15", "current 20"]);
  reader.add(image.cut("y"));
  assert.deepEqual((await reader.next()).value, { type: "stale", why: "y" });
});

test("a reader that is left is forgotten, and one that is closed ends when all is read", async () => {
  const image = opened(), left = [], reader = new ChangeReader((one) => left.push(one));
  reader.add(image.put(entry("b", 11)));
  for await (const change of reader) {
    assert.equal(word(change), "+b11");
    break;
  }
  assert.deepEqual(left, [reader]);
  const other = new ChangeReader(() => {});
  const waiting = other.some();
  other.add(image.put(entry("b", 12)));
  other.close();
  assert.deepEqual((await waiting).map(word), ["~b12"]);
  assert.deepEqual(await other.next(), { done: true, value: undefined });
});

test("a clock goes on while one of the browser's two stands still or is set back", () => {
  let [steady, wall] = [100, 1000];
  const clock = makeClock(() => steady, () => wall);
  steady += 10, wall += 10;
  assert.equal(clock(), 10);
  wall += 5000; // the machine slept
  assert.equal(clock(), 5010);
  steady += 5, wall -= 3600;
  assert.equal(clock(), 5015);
});
