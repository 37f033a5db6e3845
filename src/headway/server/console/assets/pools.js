/** Memory, disk, the journal and the loop: what the broker itself has, and how late it is. */

import { chart, timeline } from "./chart.js";
import { h, keyed, say } from "./dom.js";
import { count, duration, many, short, size } from "./format.js";
import { ask } from "./request.js";
import { again, makeTable } from "./table.js";

const POOLS = [
  { word: "Pool", of: (row) => row.name || "all" },
  { word: "Memory", of: (row) => size(row.memory_bytes), number: true, grave: (row) => (row.memory_bytes > 0.9 * row.memory_limit_bytes ? "bad" : null) },
  { word: "of", of: (row) => size(row.memory_limit_bytes), number: true },
  { word: "most", of: (row) => size(row.memory_peak_bytes), number: true },
  { word: "States", of: (row) => size(row.state_bytes), number: true },
  { word: "Clients", about: "What clients take up besides records", of: (row) => size(row.clients_bytes), number: true },
  { word: "of", of: (row) => size(row.clients_limit_bytes), number: true },
  { word: "Disk", of: (row) => size(row.disk_bytes), number: true, grave: (row) => (row.disk_bytes > 0.9 * row.disk_limit_bytes ? "bad" : null) },
  { word: "of", of: (row) => size(row.disk_limit_bytes), number: true },
  { word: "most", of: (row) => size(row.disk_peak_bytes), number: true },
];
const CHARTS = [
  ["in_records", "Published", "Records a second", (value) => `${short(value)}/s`],
  ["out_records", "Delivered", "Records a second", (value) => `${short(value)}/s`],
  ["memory_bytes", "Memory", "All pools", size],
  ["disk_bytes", "On disk", "All pools", size],
  ["rss_bytes", "Process", "The process’s resident memory", size],
  ["late_p99_s", "Loop late", "99 of 100 probes were late by less", duration],
  ["slow", "Slow", "Consumers that are marked slow", count],
  ["paused", "Held back", "Publishers that are held back", count],
];
const SPAN_MIN_S = 120;

export function pools(root) {
  const note = h("p", { class: "note", role: "status" });
  const table = makeTable("Pools", POOLS, "");
  const facts = h("dl", { class: "facts" });
  const charts = h("div");
  root.append(h("h1", {}, "Pools, disk and loop"), note, h("section", { "aria-label": "Pools" }, h("h2", {}, "Pools"), table.element),
    h("section", { "aria-label": "Broker" }, h("h2", {}, "The broker"), facts),
    h("section", { "aria-label": "The last hour" }, h("h2", {}, "The last hour"), charts));
  return again(async (over) => {
    const [broker, hour] = await Promise.all([ask("/v1/broker"), ask("/v1/console/hour")]);
    if (over()) return;
    table.fill(broker.pools, (row) => row.name);
    keyed(facts, factsOf(broker), ([word]) => word, ([word]) => {
      const value = h("dd");
      return Object.assign(h("div", {}, h("dt", {}, word), value), { value });
    }, (element, [, text]) => say(element.value, text));
    if (hour.wall_s.length) {
      const end = hour.wall_s.at(-1);
      const span = [Math.min(hour.wall_s[0], end - SPAN_MIN_S), end];
      charts.replaceChildren(timeline(span, []), ...CHARTS.map(([name, word, about, format]) =>
        chart({ word, about, times: hour.wall_s, values: hour[name], span, format })));
    }
  }, note, 5000);
}

function factsOf(broker) {
  const { loop, journal, history, telemetry, console: consoles } = broker;
  const skipped = consoles.consoles.reduce((total, one) => total + one.skipped, 0);
  return [
    ["Running for", duration(broker.uptime_s)],
    ["Process", `${size(broker.memory_rss_bytes)} resident, ${size(broker.memory_peak_bytes)} at most`],
    ["Connections", `${count(broker.connections)}; ${count(broker.connections_refused)} refused, ${many(broker.protocol_errors, "protocol error")}`],
    ["Longest turn", duration(broker.longest_turn_ms / 1000)],
    ["Loop late", `${duration(loop.late_ms_lately / 1000)} at most of late; ever ${duration(loop.late_ms_longest / 1000)}: ${loop.late_longest || "–"}`],
    ["Journal", journal ? `${size(journal.bytes)} in ${journal.path}; longest commit ${duration(journal.longest_commit_ms / 1000)}${journal.error ? `; ${journal.error}` : ""}` : "none: nothing is kept"],
    ["History of verdicts", history ? `${count(history.written_entries)} entries in ${history.path}${history.last_error ? `; ${history.last_error}` : ""}` : "none: verdicts are lost with the process"],
    ["Telemetry", telemetry ? `${size(telemetry.lake_bytes)} in ${telemetry.path}${telemetry.last_error ? `; ${telemetry.last_error}` : ""}` : "none: no lab, no health report"],
    ["Consoles", `${count(consoles.consoles.length)}; ${skipped ? `slow ones were not given ${many(skipped, "frame")}` : "none has missed a frame"}`],
  ];
}
