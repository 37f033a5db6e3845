/** Tables of figures: rows by key, updated where they are. */

import { h, keyed, mark, named, say } from "./dom.js";

/**
 * Returns a table and how to fill it. A column is { word, about, of, number, name, grave }: `of` returns a row's text,
 * `name` means that it is a client's or a topic's name, `href` where it leads.
 */
export function makeTable(label, columns, empty) {
  const body = h("tbody");
  const note = h("p", { class: "note" }, empty);
  const table = h("table", { class: "plain-table", "aria-label": label },
    h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col", class: column.number ? "number" : null, title: column.about }, column.word)))), body);
  return {
    element: h("div", { class: "scrolls" }, table, note),
    fill(rows, keyOf) {
      table.hidden = !rows.length;
      note.hidden = rows.length > 0;
      keyed(body, rows, keyOf, (row) => h("tr", {}, columns.map((column, at) => makeCell(column, row, at))), (element, row) => {
        columns.forEach((column, at) => {
          const cell = element.children[at];
          if (!column.name) say(cell, column.of(row));
          else if (cell.told !== column.of(row)) tellName(cell, column, row);
          if (column.grave) mark(cell, "data-grave", column.grave(row));
        });
      });
    },
  };
}

function makeCell(column, row, at) {
  const tag = at === 0 ? "th" : "td";
  const cell = h(tag, { class: column.number ? "number" : null, scope: at === 0 ? "row" : null });
  if (column.name) tellName(cell, column, row);
  return cell;
}

function tellName(cell, column, row) {
  cell.told = column.of(row);
  const name = named(cell.told);
  cell.replaceChildren(column.href ? h("a", { href: column.href(row) }, name) : name);
}

/** Calls `look` now and every so often, until what it returns is called. Errors are shown in `note`. */
export function again(look, note, everyMs = 2000) {
  let over = false;
  let timer;
  const go = async () => {
    try {
      await look(() => over);
      if (!over) say(note, "");
    } catch (error) {
      if (!over) say(note, error.message);
    }
    if (!over) timer = setTimeout(go, everyMs);
  };
  go();
  return () => {
    over = true;
    clearTimeout(timer);
  };
}
