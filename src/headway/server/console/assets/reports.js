/** Reports: the pages that `headway pipeline health` and `headway lab` have written, to open. */

import { h, keyed, named, say } from "./dom.js";
import { clock, count, day, size } from "./format.js";
import { ask } from "./request.js";

const KINDS = { health: "Health", lab: "Policy lab" };

export function reports(root) {
  const said = h("p", { class: "note", role: "status" }, "Looking …");
  const body = h("tbody", {});
  const table = h("div", { class: "scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, ["Report", "Kind", "Written", "Size"].map((word) => h("th", { scope: "col" }, word)))), body));
  table.hidden = true;
  root.append(h("h1", {}, "Reports"), h("section", { "aria-label": "Reports" }, said, table), how());
  ask("/v1/reports").then((found) => {
    table.hidden = !found.reports.length;
    keyed(body, found.reports, (report) => report.name, row, () => {});
    say(said, sentence(found));
  }, (error) => say(said, error.message));
}

function sentence({ folder, reports, total }) {
  if (folder === null) return "The broker knows no folder of reports: set reports in [server] of its config.";
  if (!reports.length) return `No report is in ${folder}, or in a folder in it.`;
  return total > reports.length ? `The newest ${count(reports.length)} of ${count(total)} in ${folder}.` : `In ${folder}, the newest first.`;
}

function row(report) {
  const written = `${day(report.wall_s)} ${clock(report.wall_s)}`;
  return h("tr", {},
    h("td", {}, h("a", { href: `console/report.html#${encodeURIComponent(report.name)}`, target: "_blank", rel: "opener" }, named(report.name))),
    h("td", {}, KINDS[report.kind] ?? report.kind), h("td", {}, h("time", { datetime: new Date(report.wall_s * 1000).toISOString() }, written)),
    h("td", { class: "number" }, size(report.bytes)));
}

function how() {
  return h("section", { "aria-label": "How a report is made" },
    h("p", {}, "How the consumers are doing: ", h("code", {}, "headway pipeline health --lake LAKE --out REPORTS/health"), "."),
    h("p", {}, "What other policies would have done: ", h("code", {}, "headway lab run --lake LAKE --candidates FILE --out REPORTS/lab"), "."),
    h("p", {}, "The config shows where they are: ", h("code", {}, 'reports = "REPORTS"'), " in ", h("code", {}, "[server]"),
      ", from the broker's next start. LAKE is the path of ", h("code", {}, "[telemetry]"), "."));
}
