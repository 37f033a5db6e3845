/** Policies: those in force, a copy to edit, and at once whom the copy would hit now, and would have hit in the last hour. */

import { h, named, say } from "./dom.js";
import { clock, count, many } from "./format.js";
import { ask } from "./request.js";
import { makeTable } from "./table.js";
import { actionWord } from "./words.js";

const WAIT_MS = 600;
const NOW = [
  { word: "Client", of: (row) => row.client, name: true, href: (row) => `#/client/${encodeURIComponent(row.client)}` },
  { word: "Rule", of: (row) => `${row.policy}, rule ${row.rule}` },
  { word: "Why", of: (row) => row.text, name: true },
];
const HOUR = [
  { word: "At", of: (row) => clock(row.wall_s) },
  { word: "Client", of: (row) => row.client, name: true, href: (row) => `#/consumer/${row.key}` },
  { word: "Would be", of: (row) => `${actionWord(row.action)}${row.enforced ? "" : " (dry run)"}` },
  { word: "Rule", of: (row) => `${row.policy}, rule ${row.rule}` },
  { word: "Why", of: (row) => row.text, name: true },
];

export function policies(root) {
  const [text, said, source] = [h("textarea", { id: "policy", rows: 26, spellcheck: "false", "aria-describedby": "verdict" }), h("p", { id: "verdict", role: "status" }), h("p", { class: "note" })];
  const [now, hour] = [makeTable("Hit now", NOW, "None of those who are here."), makeTable("Hit in the last hour", HOUR, "Nobody.")];
  const [nowSaid, hourSaid] = [h("p", { class: "small" }), h("p", { class: "small" })];
  let inForce = "";
  let asked = 0;
  let timer;
  const look = async () => {
    const mine = ++asked;
    const body = { method: "POST", headers: { "Content-Type": "application/toml" }, body: text.value };
    try {
      const [those, then] = await Promise.all([ask("/v1/preview", body), ask("/v1/console/replay", body)]);
      if (mine !== asked) return;
      say(said, text.value === inForce ? "As it is in force." : "In order. Nothing is changed in the broker.");
      said.removeAttribute("data-grave");
      say(nowSaid, `If every window were over: ${many(those.total, "hit")} on ${many(those.clients, "client")}, of ${many(those.consumers, "consumer")}.`);
      now.fill(those.hits.slice(0, 50), (row) => `${row.client} ${row.filter} ${row.policy} ${row.rule}`);
      say(hourSaid, then.since === null ? "Nobody was in trouble since the broker began."
        : `${many(then.total, "first hit")}, among the ${many(then.consumers, "consumer")} that were in trouble since ${clock(then.since)}; one sample every 5 s (${count(then.samples)}).`);
      hour.fill(then.hits.slice(0, 50), (row) => `${row.wall_s} ${row.key} ${row.policy} ${row.rule}`);
    } catch (error) {
      if (mine !== asked) return;
      say(said, error.message);
      said.setAttribute("data-grave", "bad");
    }
  };
  text.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(look, WAIT_MS);
  });
  root.append(h("h1", {}, "Policies"),
    h("div", { class: "pair even" },
      h("section", { "aria-label": "Edit a copy" }, h("h2", {}, h("label", { for: "policy" }, "A copy of what is in force; edit it")), text, said,
        h("div", { class: "buttons" },
          h("button", { type: "button", onclick: () => save(text.value) }, "Save as policies.toml"),
          h("button", { type: "button", onclick: () => navigator.clipboard.writeText(text.value).then(() => say(said, "Copied."), (error) => say(said, error.message)) }, "Copy"),
          h("button", { type: "button", onclick: () => {
            text.value = inForce;
            look();
          } }, "Begin again")), source),
      h("div", {},
        h("section", { "aria-label": "Now" }, h("h2", {}, "Whom it would hit now"), nowSaid, now.element),
        h("section", { "aria-label": "The last hour" }, h("h2", {}, "Whom it would have hit in the last hour"), hourSaid, hour.element,
          h("p", { class: "note" }, "The broker’s own code judges its samples again. What a rule would have changed is not played on: that, and more than an hour, is the lab’s (",
            h("code", {}, "headway lab run"), "), on recorded telemetry.")))));
  ask("/v1/console/policies").then((found) => {
    inForce = text.value = found.text;
    source.append(found.source ? "To put it in force: into " : "The broker runs with its default config. To put it in force: into a file for --config, ",
      found.source ? named(found.source) : "", ", then SIGHUP. ", h("code", {}, "headway check FILE --against URL"), " says the same as this page.");
    look();
  }, (error) => say(said, error.message));
  return () => {
    asked = -1;
    clearTimeout(timer);
  };
}

function save(text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/toml" }));
  h("a", { href: url, download: "policies.toml" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
