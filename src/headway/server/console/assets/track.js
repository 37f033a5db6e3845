/**
 * The track: a log as a line, drawn by age. Its end, where publishers write, is at the right; the further left a mark,
 * the older is what waits for that consumer. The scale is logarithmic and the same for all lines, so marks below each
 * other compare.
 */

import { h, keyed, mark, place, say } from "./dom.js";
import { duration, short } from "./format.js";
import { graveOf } from "./words.js";

const OLDEST_S = 3600;
const FINE_S = 0.2;
export const TICKS_S = [0, 1, 10, 60, 600, 3600];

/** Returns how far from the end an age is, 0 to 1. */
export function distance(ageS) {
  return Math.min(1, Math.log1p(Math.max(0, ageS) / FINE_S) / Math.log1p(OLDEST_S / FINE_S));
}

function percent(part) {
  return `${(part * 100).toFixed(2)}%`;
}

/** The scale above the lines. */
export function scale() {
  const words = { 0: "now", 60: "1 min", 600: "10 min", 3600: "1 h" };
  return h("div", { class: "scale", "aria-hidden": "true" }, TICKS_S.map((ageS) =>
    h("span", { style: { right: percent(distance(ageS)) } }, words[ageS] ?? `${ageS} s`)));
}

/** One consumer's place: its mark, and a tail from the end of the log to it. */
export function place1() {
  return h("div", { class: "track" }, h("div", { class: "tail" }), h("div", { class: "cursor" }));
}

export function setPlace(track, row) {
  const far = percent(distance(row.connected || row.lag_records ? row.lag_s : 0));
  place(track.firstChild, { width: far });
  place(track.lastChild, { right: far });
  mark(track, "data-grave", graveOf(row.state, row.slow));
}

/** A lane's line: the band of those at its end, and a mark for each consumer that is not. */
export function line() {
  const bar = h("div", { class: "band" });
  return h("div", { class: "track line" }, bar, h("div", { class: "marks" }));
}

export function setLine(track, healthy, rows) {
  mark(track.firstChild, "hidden", healthy ? null : "");
  say(track.firstChild, short(healthy));
  keyed(track.lastChild, rows, (row) => row.key, () => h("div", { class: "cursor" }), (child, row) => {
    place(child, { right: percent(distance(row.lag_s)) });
    mark(child, "data-grave", graveOf(row.state, row.slow));
  });
  const words = rows.slice(0, 5).map((row) => `${row.client} ${duration(row.lag_s)} behind`).join(", ");
  mark(track, "role", "img");
  mark(track, "aria-label", `${healthy} at the end of the log${words ? `; ${words}` : ""}`);
}
