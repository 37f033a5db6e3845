/** Publishers, and what holds them back. */

import { h, keyed, say } from "./dom.js";
import { count, duration, many, size } from "./format.js";
import { ask } from "./request.js";
import { again, makeTable } from "./table.js";

const COLUMNS = [
  { word: "Publisher", of: (row) => row.client, name: true, href: (row) => `#/client/${encodeURIComponent(row.client)}` },
  { word: "", of: (row) => (row.connected ? "" : "gone") },
  { word: "Published", of: (row) => count(row.published_records), number: true },
  { word: "Bytes", of: (row) => size(row.published_bytes), number: true },
  { word: "Now", of: (row) => (row.paused ? `waits: ${row.waits_for}` : "flows"), grave: (row) => (row.paused ? "watch" : null) },
  { word: "Held back", of: (row) => (row.pauses ? `${many(row.pauses, "time")}, ${duration(row.stalled_ms / 1000)} in all` : "never") },
  { word: "Refused", of: (row) => count(row.refused_records), number: true, grave: (row) => (row.refused_records ? "bad" : null) },
  { word: "Left out for consumers", about: "Records of this publisher that some consumer was not given", of: (row) =>
    Object.entries(row.lost_records).map(([reason, number]) => `${count(number)} ${reason.replaceAll("_", " ")}`).join(", ") || "none" },
];

export function publishers(root, house) {
  const note = h("p", { class: "note", role: "status" });
  const table = makeTable("Publishers", COLUMNS, "Nobody has published anything.");
  const stalls = h("ul", { class: "plain" });
  root.append(h("h1", {}, "Publishers"), note, h("section", { "aria-label": "Publishers" }, table.element),
    h("section", { "aria-label": "Who holds them back" }, h("h2", {}, "Consumers that publishers waited for"), stalls));
  const close = house.feed.onFrame((frame) => {
    const those = frame.rows.filter((row) => row.stall_s > 0).sort((one, other) => other.stall_s - one.stall_s);
    keyed(stalls, those, (row) => row.key, (row) => h("li", {}, h("a", { href: `#/consumer/${row.key}` }, h("bdi", {}, row.client)), h("span")),
      (element, row) => say(element.lastChild, `: ${duration(row.stall_s)} in all`));
    if (!those.length) keyed(stalls, [0], String, () => h("li", { class: "note" }, "None of those in trouble: nobody is waited for."), () => {});
  });
  const stop = again(async (over) => {
    const found = await ask("/v1/publishers");
    if (!over()) table.fill(found.publishers, (row) => row.client);
  }, note);
  return () => {
    close();
    stop();
  };
}
