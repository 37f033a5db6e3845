/** The state of a topic as a live table: the latest record of each key, filtered, ordered, and asked for again. */

import { h, keyed, named, say, shown } from "./dom.js";
import { ago, count } from "./format.js";
import { ask } from "./request.js";
import { again } from "./table.js";

const ROWS = 50;
const COLUMNS_MAX = 8;
const TEXT_MAX = 60;

/** Shows the state of the topics that a filter matches. */
export function stateTable(root, filter) {
  const where = h("input", { id: "where", size: 28, placeholder: "delay > 15", autocomplete: "off", spellcheck: "false" });
  const order = h("input", { id: "order", size: 18, placeholder: "/delay DESC", autocomplete: "off", spellcheck: "false" });
  const live = h("input", { type: "checkbox", id: "live", checked: true });
  const said = h("p", { class: "note", role: "status" });
  const head = h("tr");
  const body = h("tbody");
  let asked = new URLSearchParams({ top: ROWS });
  const form = h("form", { class: "buttons", onsubmit: (event) => {
    event.preventDefault();
    asked = new URLSearchParams({ top: ROWS });
    if (where.value.trim()) asked.set("where", where.value.trim());
    if (order.value.trim()) asked.set("order_by", order.value.trim());
    look(() => false).catch((error) => say(said, error.message));
  } },
  h("label", { for: "where" }, "Where"), where, h("label", { for: "order" }, "Order by"), order,
  h("button", { type: "submit" }, "Ask"), h("label", {}, live, " live"));
  root.append(h("p", { class: "crumb" }, h("a", { href: "#/queues" }, "Queues and topics")),
    h("h1", {}, "The state of ", named(filter)), h("section", { "aria-label": "State" }, form, said,
      h("div", { class: "scrolls" }, h("table", { class: "plain-table", "aria-label": "State" }, h("thead", {}, head), body))));

  const look = async (over) => {
    const found = await ask(`/v1/state/${encodeURIComponent(filter)}?${asked}`);
    if (over()) return;
    const rows = found.records.map((record) => ({ record, fields: fieldsOf(record.payload) }));
    const columns = [...new Set(rows.flatMap((row) => Object.keys(row.fields)))].slice(0, COLUMNS_MAX);
    keyed(head, ["Key", ...columns, "Changed"], (name) => name, (name) => h("th", { scope: "col" }, shown(name)), () => {});
    keyed(body, rows, (row) => `${row.record.topic} ${row.record.key} ${columns}`, () => h("tr", {}, h("th", { scope: "row" }), columns.map(() => h("td", {})), h("td")),
      (element, row) => {
        const cells = [...element.children];
        if (!cells[0].firstChild) cells[0].append(named(row.record.key));
        columns.forEach((name, at) => say(cells[at + 1], text(row.fields[name])));
        say(cells.at(-1), ago((Date.now() - Date.parse(row.record.timestamp)) / 1000));
      });
    say(said, `${count(rows.length)} of ${count(found.keys)} keys, as of offset ${count(found.offset)}.`);
  };
  return again(async (over) => {
    if (live.checked) await look(over);
  }, { set textContent(message) {
    if (message) say(said, message);
  }, get textContent() {
    return "";
  } });
}

/** The fields of a payload; one that is no JSON object is a field of its own. */
function fieldsOf(payload) {
  try {
    const value = JSON.parse(payload);
    if (value !== null && typeof value === "object" && !Array.isArray(value)) return value;
  } catch {
    // no JSON
  }
  return { payload };
}

function text(value) {
  if (value === undefined) return "";
  const written = shown(typeof value === "string" ? value : JSON.stringify(value));
  return written.length > TEXT_MAX ? `${written.slice(0, TEXT_MAX)}…` : written;
}
