/** Charts over the last hour: one line each, on a common axis of time, with marks where verdicts fell. */

import { h, s } from "./dom.js";
import { clock } from "./format.js";
import { deedGrave, deedWord } from "./words.js";

const [WIDTH, HEIGHT, TOP, BOTTOM] = [900, 84, 6, 4];

/**
 * Returns a chart. `times` and `values` are columns; `span` is [from, to] in seconds; `format` writes a value;
 * `deeds` are marked.
 */
export function chart({ word, about, times, values, span, format, deeds = [] }) {
  const top = Math.max(...values, 0);
  const most = top || 1;
  const x = (time) => ((time - span[0]) / (span[1] - span[0])) * WIDTH;
  const y = (value) => TOP + (1 - value / most) * (HEIGHT - TOP - BOTTOM);
  const last = values.at(-1);
  const label = `${word}: ${values.length ? `now ${format(last)}, at most ${format(Math.max(...values))}` : "nothing measured"}`;
  const svg = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label, class: "chart", preserveAspectRatio: "none" },
    s("line", { x1: 0, x2: WIDTH, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM, class: "axis" }),
    s("line", { x1: 0, x2: WIDTH, y1: TOP, y2: TOP, class: "axis faint" }),
    deeds.map((deed) => s("line", { x1: x(deed.wall_s), x2: x(deed.wall_s), y1: 0, y2: HEIGHT, class: "deed", "data-grave": deedGrave(deed) })),
    s("path", { d: path(times, values, x, y), class: "line" }));
  return h("figure", { class: "plot" },
    h("figcaption", { title: about }, h("span", {}, word), h("span", { class: "small" }, values.length ? format(last) : "–")),
    h("div", { class: "drawn" }, h("span", { class: "most", "aria-hidden": "true" }, top ? format(top) : ""),
      h("span", { class: "least", "aria-hidden": "true" }, format(0)), svg));
}

/** A line is broken where samples are missing: nothing was measured, because nothing was wrong. */
function path(times, values, x, y) {
  let text = "";
  let before = -Infinity;
  times.forEach((time, at) => {
    text += `${time - before > 12 ? "M" : "L"}${x(time).toFixed(1)} ${y(values[at]).toFixed(1)}`;
    if (time - before > 12) text += "h1"; // a single sample is a dot
    before = time;
  });
  return text;
}

/** The axis of time, and the verdicts on it, each a link to its sentence below. */
export function timeline(span, deeds) {
  const at = (time) => `${(((time - span[0]) / (span[1] - span[0])) * 100).toFixed(2)}%`;
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((part) => span[0] + part * (span[1] - span[0]));
  return h("div", { class: "timeline" },
    h("div", { class: "deed-marks" }, deeds.map((deed) => h("a", {
      href: `#deed-${deed.number}`, style: { left: at(deed.wall_s) }, "data-grave": deedGrave(deed),
      title: `${clock(deed.wall_s)} ${deedWord(deed)}`, "aria-label": `${clock(deed.wall_s)}: ${deedWord(deed)}`,
      onclick: (event) => {
        event.preventDefault();
        document.getElementById(`deed-${deed.number}`)?.focus();
      },
    }, "▼"))),
    h("div", { class: "ticks", "aria-hidden": "true" }, ticks.map((time) => h("span", { style: { left: at(time) } }, clock(time)))));
}
