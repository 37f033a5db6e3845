/** Queues, topics, and the states of topics. */

import { h } from "./dom.js";
import { count, duration, many, size } from "./format.js";
import { ask } from "./request.js";
import { stateTable } from "./state.js";
import { again, makeTable } from "./table.js";

const QUEUES = [
  { word: "Queue", of: (row) => row.name, name: true },
  { word: "Waiting", of: (row) => count(row.records), number: true, about: "Records that wait for a consumer" },
  { word: "Bytes", of: (row) => size(row.bytes), number: true },
  { word: "Oldest", of: (row) => (row.records ? duration(row.age_ms / 1000) : "–"), number: true },
  { word: "Unsettled", of: (row) => count(row.unacknowledged), number: true, about: "Records that consumers have and have not acknowledged" },
  { word: "Consumers", of: (row) => count(row.consumers), number: true, grave: (row) => (row.records && !row.consumers ? "bad" : null) },
  { word: "Slow", of: (row) => count(row.slow_consumers), number: true, grave: (row) => (row.slow_consumers ? "bad" : null) },
  { word: "Handed out", of: (row) => count(row.handed_records), number: true },
  { word: "Dropped", of: (row) => Object.entries(row.dropped_records).map(([reason, number]) => `${count(number)} ${reason.replaceAll("_", " ")}`).join(", ") || "–" },
  { word: "Kept", of: (row) => (row.durable ? "durable" : "transient") },
];
const TOPICS = [
  { word: "Subscribed to", of: (row) => row.filter, name: true },
  { word: "Consumers", of: (row) => count(row.consumers), number: true },
  { word: "In trouble", of: (row) => count(row.troubled), number: true, grave: (row) => (row.troubled ? "bad" : null) },
  { word: "Records so far", of: (row) => count(row.records), number: true },
  { word: "In memory", of: (row) => size(row.memory_bytes), number: true },
  { word: "On disk", of: (row) => size(row.disk_bytes), number: true },
  { word: "Publishers", of: (row) => (row.gated ? "wait for a consumer of it" : "flow"), grave: (row) => (row.gated ? "watch" : null) },
];
const STATES = [
  { word: "Topic", of: (row) => row.filter, name: true, href: (row) => `#/queues/${encodeURIComponent(row.filter)}` },
  { word: "Key", of: (row) => row.key, name: true },
  { word: "Keys", of: (row) => count(row.records), number: true },
  { word: "Bytes", of: (row) => size(row.bytes), number: true },
  { word: "Readers", of: (row) => count(row.readers), number: true, about: "Consumers that may be conflated by it" },
];

/** Shows all; with a filter, the state of that topic as a live table. */
export function queues(root, house, [filter]) {
  const note = h("p", { class: "note", role: "status" });
  if (filter !== undefined) return stateTable(root, filter);
  root.append(h("h1", {}, "Queues and topics"), note);
  const tables = [
    makeTable("Queues", QUEUES, "There are no queues."), makeTable("Topics", TOPICS, "Nobody has subscribed to anything."),
    makeTable("States", STATES, "No topic keeps a state: a [[topic]] with a key does."),
  ];
  const total = h("p", { class: "note" });
  root.append(
    h("section", { "aria-label": "Queues" }, h("h2", {}, "Queues, the longest first"), tables[0].element, total),
    h("section", { "aria-label": "Topics" }, h("h2", {}, "Topics: lanes with somebody in trouble, and those with the most readers"), tables[1].element),
    h("section", { "aria-label": "States" }, h("h2", {}, "States: the latest record of each key"), tables[2].element));
  const close = house.feed.onFrame((frame) => tables[1].fill(
    frame.lanes.map((lane, index) => ({ ...lane, index })).filter((lane) => !lane.queue), (lane) => `${lane.index} ${lane.filter}`));
  const stop = again(async (over) => {
    const [found, states] = await Promise.all([ask("/v1/queues"), ask("/v1/console/states")]);
    if (over()) return;
    tables[0].fill(found.queues, (row) => row.name);
    total.hidden = found.total <= found.queues.length;
    total.textContent = `The longest of ${many(found.total, "queue")}.`;
    tables[2].fill(states, (row) => row.filter);
  }, note);
  return () => {
    close();
    stop();
  };
}
