/** Last night: verdicts and ends of connections, from the history, by time, cause and client. */

import { h, keyed, named, say } from "./dom.js";
import { clock, day, many } from "./format.js";
import { lines } from "./request.js";
import { actionWord, causeWord, deedGrave } from "./words.js";

const SINCE = [["1h", "the last hour"], ["12h", "the last 12 hours"], ["1d", "the last day"], ["7d", "the last week"]];
const KINDS = [["all", "verdicts and ends"], ["verdict", "verdicts"], ["end", "ends of connections"]];
const CAUSES = [["", "any cause"], ...["application", "network", "over_subscription", "producer_burst", "broker", "operator"].map((cause) => [cause, causeWord(cause)])];
const LIMIT = 300;

export function verdicts(root) {
  const select = (id, options) => h("select", { id }, options.map(([value, word]) => h("option", { value }, word)));
  const [since, kind, cause] = [select("since", SINCE), select("kind", KINDS), select("cause", CAUSES)];
  const who = h("input", { id: "who", size: 18, placeholder: "display-*", autocomplete: "off", spellcheck: "false" });
  since.value = "12h";
  const said = h("p", { class: "note", role: "status" });
  const list = h("ol", { class: "deeds night" });
  const summary = h("p", {});
  const look = async () => {
    const query = new URLSearchParams({ since: since.value, kind: kind.value, limit: LIMIT });
    if (cause.value) query.set("cause", cause.value);
    if (who.value.trim()) query.set("client", who.value.trim());
    try {
      draw(await lines(`/v1/verdicts?${query}`));
    } catch (error) {
      say(said, error.message);
      keyed(list, [], String, () => null, () => {});
      say(summary, "");
    }
  };
  const draw = (entries) => {
    say(said, entries.length === LIMIT ? `The newest ${LIMIT}; narrow it down for more.` : "");
    say(summary, summaryOf(entries));
    keyed(list, entries, (entry) => `${entry.run} ${entry.kind} ${entry.wall_s} ${entry.number} ${entry.client}`, makeEntry, () => {});
    if (!entries.length) keyed(list, [0], String, () => h("li", { class: "note" }, "Nothing: a quiet night."), () => {});
  };
  const form = h("form", { class: "buttons", onsubmit: (event) => {
    event.preventDefault();
    look();
  }, onchange: look }, h("label", { for: "kind" }, "Show"), kind, h("label", { for: "since" }, "of"), since,
  h("label", { for: "cause" }, "by"), cause, h("label", { for: "who" }, "client"), who, h("button", { type: "submit" }, "Ask"));
  root.append(h("h1", {}, "Last night"), h("section", { "aria-label": "Filter" }, form, said), h("section", { "aria-label": "What was decided" }, summary, list));
  look();
}

function makeEntry(entry) {
  const end = entry.kind === "end";
  const what = end ? "connection ended" : entry.decision === "clear" ? "recovered" : `${entry.enforced === false ? "would be: " : ""}${actionWord(entry.action)}`;
  return h("li", {},
    h("time", { datetime: entry.time, title: entry.time }, `${day(entry.wall_s).slice(5)} ${clock(entry.wall_s)}`),
    h("span", { class: "what", "data-grave": end ? "quiet" : deedGrave({ ...entry, kind: entry.decision, cause: entry.cause ?? "" }) }, what),
    h("span", {}, entry.cause ? causeWord(entry.cause) : end ? entry.reason.replaceAll("_", " ") : ""),
    h("a", { href: `#/client/${encodeURIComponent(entry.client)}` }, named(entry.client)),
    h("span", { class: "text" }, h("bdi", {}, entry.text ?? "")));
}

function summaryOf(entries) {
  const fired = entries.filter((entry) => entry.decision === "fire" && entry.enforced !== false);
  const cut = fired.filter((entry) => ["disconnect", "delete_subscription", "close_consumer"].includes(entry.action));
  const clients = new Set(cut.map((entry) => entry.client));
  if (!entries.length) return "";
  return `${many(fired.length, "verdict")} in force, of ${many(entries.length, "entry").replace("entrys", "entries")}; `
    + (clients.size ? `${many(clients.size, "client")} cut: ${[...clients].slice(0, 8).join(", ")}${clients.size > 8 ? ", …" : ""}.` : "nobody was cut.");
}
