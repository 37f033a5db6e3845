/** One consumer: how it stands, its last hour with the verdicts on it, and what its policy would do next. */

import { chart, timeline } from "./chart.js";
import { h, keyed, mark, named, place, say } from "./dom.js";
import { ago, clock, count, duration, many, rate, share, size } from "./format.js";
import { moveButtons } from "./moves.js";
import { ask } from "./request.js";
import { actionWord, causeWord, deedGrave, deedWord, setState, stateBadge } from "./words.js";

const EVERY_MS = 5000;
const SPAN_MIN_S = 120;
const CHARTS = [
  ["lag_age", "Behind", "How long the oldest record had waited", duration],
  ["lag_bytes", "Waiting", "Bytes that waited for it", size],
  ["drain_rate", "Takes", "Bytes that it took a second", rate],
  ["blocked_time", "Took nothing", "For how long it had taken no bytes", duration],
];

/** Shows the consumer of this key. */
export function consumer(root, house, [key]) {
  const page = makePage(root, house, () => look());
  let over = false;
  const look = async () => {
    try {
      const [one, whole] = await Promise.all([ask(`/v1/console/consumers/${key}`), ask("/v1/console/hour")]);
      if (!over) page.draw(one, whole);
    } catch (error) {
      if (!over) page.fail(error);
    }
  };
  look();
  const timer = setInterval(look, EVERY_MS);
  return () => {
    over = true;
    clearInterval(timer);
  };
}

function makePage(root, house, done) {
  const [title, about, facts, rules, charts, deeds] = [h("h1"), h("p", { class: "lately" }), h("dl", { class: "facts" }), h("tbody"), h("div"), h("ol", { class: "deeds" })];
  const policy = h("p", { class: "note" });
  const buttons = h("div");
  const badge = stateBadge();
  root.append(h("p", { class: "crumb" }, h("a", { href: "#/" }, "Board")), title, about);
  let known = null;
  const build = () => root.append(
    h("section", { "aria-label": "How it stands" }, facts, buttons),
    h("section", { "aria-label": "The last hour" }, h("h2", {}, "The last hour, while it was in trouble"), charts),
    h("div", { class: "pair" },
      h("section", { "aria-label": "Verdicts" }, h("h2", {}, "Verdicts, the newest first"), deeds),
      h("section", { "aria-label": "What comes next" }, h("h2", {}, "What its policy would do next"), policy,
        h("table", { class: "rules" }, h("thead", {}, h("tr", {}, ["Rule", "Then", "Now, and the limit", "Stands"].map((word) =>
          h("th", { scope: "col" }, word)))), rules))));
  return {
    fail(error) {
      say(about, error.message);
      if (known === null) say(title, "A consumer");
    },
    draw(one, whole) {
      if (known === null) {
        build();
        known = one.key;
        title.replaceChildren(named(one.client));
        document.title = `${one.client} – Headway`;
        about.replaceChildren(badge, " on ", named(one.filter), h("span", { class: "small" }));
        buttons.append(moveButtons(one, house, done));
      }
      setState(badge, one.there ? one.row.state : "gone", one.there && one.row.slow);
      buttons.hidden = !one.there;
      drawFacts(facts, about.lastChild, one);
      drawCharts(charts, one, whole);
      drawRules(rules, policy, one);
      drawDeeds(deeds, one);
    },
  };
}

function drawFacts(list, small, one) {
  const { row } = one;
  say(small, one.there ? ` · ${row.protocol}${one.user ? ` · user ${one.user}` : ""}${one.listener ? ` · listener ${one.listener}` : ""}${one.durable ? " · durable" : ""}` : "");
  const facts = one.there ? [
    ["Why", row.cause ? `${causeWord(row.cause)}: ${row.why}` : "nothing is wrong now"],
    ["Behind", row.lag_records ? duration(row.lag_s) : "nothing waits"],
    ["Waiting", row.lag_records ? `${size(row.lag_bytes)} in ${many(row.lag_records, "record")}` : "nothing"],
    ["It costs", `${size(row.held_bytes)} held for it${row.stall_s ? `; publishers waited ${duration(row.stall_s)}` : "; no publisher waited"}`],
    ["Takes", row.lag_records ? `${rate(row.drain_rate)} of ${rate(row.offered_rate)} offered (${share(row.drain_share)} of late)` : "all that comes"],
    ["What its client reads now", row.view_age_s >= 0.001 ? `is ${duration(row.view_age_s)} old, about` : "is new"],
    ["Left out for it", row.gaps ? many(row.gaps, "record") : "nothing"],
    ["Marked slow", row.slow_count ? many(row.slow_count, "time") : "never"],
    ...(one.patience_s ? [["Patience", `${duration(one.patience_s)} more; no rule judges it`]] : []),
  ] : [["State", "It has ended. Its last hour and its verdicts stay."]];
  keyed(list, facts, ([word]) => word, ([word]) => {
    const value = h("dd");
    return Object.assign(h("div", {}, h("dt", {}, word), value), { value });
  }, (element, [, text]) => say(element.value, text));
}

function drawCharts(root, one, whole) {
  const { hour } = one;
  if (hour === null || !hour.wall_s.length) {
    root.replaceChildren(h("p", { class: "note" }, "It was in no trouble while anybody measured."));
    return;
  }
  const end = Math.max(whole.wall_s.at(-1) ?? 0, hour.wall_s.at(-1), one.verdicts[0]?.wall_s ?? 0);
  const span = [Math.min(hour.wall_s[0], end - SPAN_MIN_S), end];
  const inside = (columns, name) => {
    const from = columns.wall_s.findIndex((time) => time >= span[0]);
    return from < 0 ? [[], []] : [columns.wall_s.slice(from), columns[name].slice(from)];
  };
  const deeds = one.verdicts.filter((deed) => deed.wall_s >= span[0]);
  const drawn = CHARTS.map(([name, word, about, format]) =>
    chart({ word, about, times: hour.wall_s, values: hour[name], span, format, deeds }));
  const [times, values] = inside(whole, "late_p99_s");
  drawn.push(chart({ word: "The others noticed", about: "How late the broker’s loop was, in 99 of 100 probes: what everybody feels",
    times, values, span, format: duration, deeds }));
  root.replaceChildren(timeline(span, deeds), ...drawn);
}

function drawRules(body, policy, one) {
  say(policy, one.policy ? `Policy “${one.policy}”${one.there ? "" : ", when it ended"}` : "No policy governs it; the limits of pools do.");
  keyed(body, one.rules, (rule) => rule.rule, () => h("tr", {}, h("th", { scope: "row" }), h("td"), h("td"), h("td")), (row, rule) => {
    const [number, then, now, stands] = row.children;
    say(number, `${rule.rule}${rule.name ? ` ${rule.name}` : ""}`);
    say(then, `${actionWord(rule.action)}${rule.enforced ? "" : " (dry run)"}`);
    keyed(now, rule.readings, (reading) => reading.meter + reading.op + reading.threshold, () =>
      Object.assign(h("div", { class: "reading" }, h("span"), h("div", { class: "meter", "aria-hidden": "true" }, h("div")))), (element, reading) => {
      say(element.firstChild, `${reading.meaning}: ${reading.value_text}, ${reading.op.startsWith("<") ? "at least" : "limit"} ${reading.limit_text}`);
      const over = reading.op.startsWith("<") ? reading.threshold / Math.max(reading.value, 1e-9) : reading.value / Math.max(reading.threshold, 1e-9);
      place(element.lastChild.firstChild, { width: `${Math.min(100, Math.max(0, over * 100)).toFixed(0)}%` });
      mark(element.lastChild, "data-grave", reading.held ? "bad" : over > 0.7 ? "watch" : null);
    });
    say(stands, standing(rule));
    mark(stands, "data-grave", rule.phase === "active" ? "bad" : rule.phase === "pending" ? "watch" : null);
  });
}

function standing(rule) {
  if (!rule.applies) return "not for it";
  if (rule.phase === "active") return `in force for ${duration(rule.held_s)}`;
  if (rule.phase === "pending") return `holds for ${duration(rule.held_s)}; fires after ${duration(rule.window_s)}`;
  if (rule.phase === "counted") return "has held, not often enough yet";
  return rule.window_s ? `idle; would have to hold ${duration(rule.window_s)}` : "idle";
}

function drawDeeds(list, one) {
  keyed(list, one.verdicts, (deed) => deed.number, (deed) => h("li", { id: `deed-${deed.number}`, tabindex: "-1" },
    h("time", { title: ago(Date.now() / 1000 - deed.wall_s) }, clock(deed.wall_s)),
    h("span", { class: "what", "data-grave": deedGrave(deed) }, deedWord(deed)),
    h("span", {}, causeWord(deed.cause)),
    h("span", { class: "text" }, h("bdi", {}, deed.text))), () => {});
  if (!one.verdicts.length) keyed(list, [0], String, () => h("li", { class: "note" }, "Nothing was ever decided about it."), () => {});
}

/** Shows a client: its only consumer, or a choice of them, and what is known of it. */
export function client(root, house, [name]) {
  root.append(h("p", { class: "crumb" }, h("a", { href: "#/" }, "Board")), h("h1", {}, named(name)));
  const list = h("ul", { class: "plain" });
  const deeds = h("ol", { class: "deeds" });
  let close = () => {};
  (async () => {
    const found = await ask(`/v1/console/consumers?client=${encodeURIComponent(name)}`);
    if (found.consumers.length === 1) {
      root.replaceChildren();
      close = consumer(root, house, [found.consumers[0].key]);
      return;
    }
    root.append(h("section", {}, h("h2", {}, found.connected ? `${count(found.total)} consumers` : "It is not connected, and has no consumers."), list),
      h("section", {}, h("h2", {}, "What is known of it"), deeds));
    list.append(...found.consumers.map((one) => h("li", {}, h("a", { href: `#/consumer/${one.key}` }, named(one.filter)), ` ${one.consumer}`)));
    const why = await ask(`/v1/why/${encodeURIComponent(name)}`);
    const lines = [...why.verdicts.map((one) => ({ wall_s: one.wall_s, what: one.kind === "clear" ? "recovered" : actionWord(one.action.name || one.action.kind), cause: one.cause, text: one.text })),
      ...why.ends.map((one) => ({ wall_s: one.wall_s, what: "connection ended", cause: one.reason, text: one.text || `after ${duration(one.lasted_s)}` }))];
    deeds.append(...lines.sort((one, other) => other.wall_s - one.wall_s).map((one) => h("li", {}, h("time", {}, clock(one.wall_s)),
      h("span", {}, one.what), h("span", {}, causeWord(one.cause ?? "")), h("span", { class: "text" }, h("bdi", {}, one.text)))));
  })().catch((error) => root.append(h("p", { class: "note" }, error.message)));
  return () => close();
}
