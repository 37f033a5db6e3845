/** The board: all lanes, each a line with its consumers on it; the healthy as a band, the others one by one. */

import { h, keyed, mark, named, place, say } from "./dom.js";
import { ago, clock, count, duration, many, rate, short, size } from "./format.js";
import { line, place1, scale, setLine, setPlace } from "./track.js";
import { causeWord, deedGrave, deedWord, setState, stateBadge } from "./words.js";

const COLUMNS = [
  ["who", "Consumer", "Its client, and what it reads"],
  ["where", "", "Where it stands in the log, by the age of what waits for it"],
  ["behind", "Behind", "How long the oldest record has waited for it, and whether more waits than before"],
  ["waits", "Waiting", "What a buffer of its own would hold: bytes, and records"],
  ["holds", "Holds", "Its share of what the broker really holds: what it costs"],
  ["takes", "Takes", "What it takes of what is offered, of late"],
  ["state", "State", "What the broker makes of it"],
  ["why", "Why", "The likely place of the trouble, now"],
  ["done", "What was done", "The last verdict on it"],
];
/** Rows of a lane that are shown at once; its line has a mark for each consumer anyway. */
const SHOWN = 12;
const MORE = { key: "more" };
const TRENDS = { 1: ["↗", "growing"], 0: ["→", "steady"], [-1]: ["↘", "shrinking"] };

/** Shows the board in `root`. Returns what to call when another view comes. */
export function board(root, { feed }) {
  const headline = h("h1", { class: "headline" }, "Looking …");
  const lately = h("p", { class: "lately" });
  const figures = makeFigures();
  const table = h("table", { class: "board", role: "table", "aria-label": "Lanes and the consumers in trouble", "aria-describedby": "legend" },
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, COLUMNS.map(([name, word, about]) =>
      h("th", { class: name, scope: "col", role: "columnheader", title: about },
        name === "where" ? [h("span", { class: "unseen" }, "Place in the log"), scale()] : word)))));
  const more = h("p", { class: "note" });
  const crowd = makeCrowd();
  const deeds = h("ol", { class: "deeds" });
  root.append(
    headline, lately, figures.element,
    h("section", { "aria-label": "Board" }, h("p", { class: "small", id: "legend" },
      "Each line is a log. It ends at the right, now: the green box counts who has read that far, and a mark is a consumer that has not."), h("div", { class: "scrolls" }, table), more),
    h("div", { class: "pair" },
      h("section", { "aria-label": "What was done" }, h("h2", {}, "What was done of late"), deeds,
        h("p", { class: "note" }, h("a", { href: "#/verdicts" }, "All verdicts and ends"))),
      h("section", { "aria-label": "All consumers" }, h("h2", {}, "All consumers, by the age of what waits for them"), crowd.element)),
  );
  return feed.onFrame((frame) => {
    say(headline, headlineOf(frame));
    mark(headline, "data-grave", frame.slow ? "bad" : frame.troubled ? "watch" : "good");
    drawLately(lately, frame);
    figures.update(frame);
    drawLanes(table, frame, feed);
    say(more, moreOf(frame));
    crowd.update(frame);
    drawDeeds(deeds, frame);
  });
}

function headlineOf(frame) {
  const { consumers, troubled, slow, away } = frame;
  const about = frame.complete ? "" : "about ";
  if (!consumers) return "Nobody consumes anything yet.";
  const absent = away ? ` ${count(away)} ${away === 1 ? "is" : "are"} away, and records wait.` : "";
  if (!troubled) return `${many(consumers, "consumer")}, and none is in trouble.${absent}`;
  const others = consumers - troubled - away;
  const cost = frame.rows.filter((row) => row.connected).reduce((total, row) => total + row.held_bytes, 0);
  const notice = frame.late_p99_s <= 0.025 ? "notice nothing" : `wait ${duration(frame.late_p99_s)} for the broker’s loop`;
  const rest = ` They cost ${size(cost)}${others > 0 ? `; the other ${count(others)} ${notice}` : ""}.${absent}`;
  return `${about}${count(troubled)} of ${many(consumers, "consumer")} ${troubled === 1 ? "is" : "are"} in trouble`
    + `${slow && slow !== troubled ? `, ${count(slow)} of them slow` : ""}.${rest}`;
}

/** Says who is gone from the board, because a verdict has ended it. */
function drawLately(element, frame) {
  element.hidden = !frame.cuts.length;
  keyed(element, frame.cuts.length ? ["", ...frame.cuts] : [], (client) => `client ${client}`, (client) => (client === ""
    ? h("span", {}, "Cut in the last 10 minutes: ")
    : h("a", { href: `#/client/${encodeURIComponent(client)}` }, named(client))), () => {});
}

function moreOf(frame) {
  const left = frame.troubled + frame.away - frame.rows.length;
  if (left > 0) return `The ${count(frame.rows.length)} worst are shown, and ${count(left)} more are in trouble.`;
  return frame.lanes.length ? "" : "Nobody has subscribed to anything.";
}

// -- figures ------------------------------------------------------------------------------------------------------

function makeFigures() {
  const one = (word, about) => {
    const value = h("dd", {}, "–");
    const small = h("dd", { class: "small" });
    const bar = h("div", { class: "meter", hidden: true }, h("div", {}));
    return { value, small, bar, element: h("div", { class: "figure", title: about }, h("dt", {}, word), value, small, bar) };
  };
  const all = {
    in: one("Published", "Records that publishers sent, a second"),
    out: one("Delivered", "Records that consumers were given, a second"),
    memory: one("Memory", "What all pools hold in memory, of what they may"),
    disk: one("On disk", "What waits on disk for consumers far behind, of what may"),
    loop: one("Loop late", "So late was the broker’s loop of late, in 99 of 100 probes: what everybody feels"),
    paused: one("Publishers", "Publishers that are held back now"),
  };
  const element = h("dl", { class: "figures" }, Object.values(all).map((figure) => figure.element));
  const set = (figure, value, small, part = null) => {
    say(figure.value, value);
    say(figure.small, small);
    figure.bar.hidden = part === null;
    if (part !== null) place(figure.bar.firstChild, { width: `${Math.min(100, part * 100).toFixed(1)}%` });
    mark(figure.bar, "data-grave", part > 0.9 ? "bad" : part > 0.7 ? "watch" : null);
  };
  return {
    element,
    update(frame) {
      const sum = (name) => frame.pools.reduce((total, pool) => total + pool[name], 0);
      const [memory, most, disk, diskMost] = ["memory_bytes", "memory_limit_bytes", "disk_bytes", "disk_limit_bytes"].map(sum);
      set(all.in, `${short(frame.rates.in_records)}/s`, rate(frame.rates.in_bytes));
      set(all.out, `${short(frame.rates.out_records)}/s`, rate(frame.rates.out_bytes));
      set(all.memory, size(memory), `of ${size(most)}`, most ? memory / most : 0);
      set(all.disk, size(disk), `of ${size(diskMost)}`, diskMost ? disk / diskMost : 0);
      set(all.loop, `< ${duration(frame.late_p99_s)}`, `at most ${duration(frame.late_most_s)}`);
      set(all.paused, frame.paused ? `${count(frame.paused)} held back` : "none held back", "");
      mark(all.paused.value, "data-grave", frame.paused ? "watch" : null);
    },
  };
}

// -- lanes --------------------------------------------------------------------------------------------------------

function drawLanes(table, frame, feed) {
  const lanes = frame.lanes.map((lane, index) => ({ ...lane, index, again: frame.lanes.slice(0, index).filter((other) => other.filter === lane.filter && other.queue === lane.queue).length,
    rows: frame.rows.filter((row) => row.lane === index) }));
  keyed(table, [null, ...lanes], (lane) => (lane === null ? "head" : `${lane.filter}/${lane.queue}/${lane.again}`),
    (lane) => (lane === null ? table.tHead : makeLane()), (body, lane) => lane !== null && setLane(body, lane, feed));
}

function makeLane() {
  const body = h("tbody", { role: "rowgroup" });
  const cells = makeCells();
  const parts = { name: h("span", { class: "name" }), about: h("span", { class: "small" }), track: line(), health: h("span", {}),
    holds: two(cells.holds), why: two(cells.why) };
  cells.where.append(parts.track);
  cells.state.append(parts.health);
  body.append(h("tr", { class: "lane", role: "row" },
    h("th", { scope: "rowgroup", class: "who", role: "rowheader" }, parts.name, parts.about), Object.values(cells)));
  body.parts = parts;
  return body;
}

function makeCells() {
  return Object.fromEntries(COLUMNS.slice(1).map(([name, word]) => [name, h("td", { class: name, role: "cell", "data-word": word })]));
}

function two(cell) {
  const parts = [h("span", {}), h("span", { class: "small" })];
  cell.append(...parts);
  return parts;
}

function set([big, small], first, second = "") {
  say(big, first);
  say(small, second);
}

function setLane(body, lane, feed) {
  const { parts } = body;
  const healthy = Math.max(0, lane.consumers - lane.rows.length);
  if (parts.name.textContent !== lane.filter) parts.name.replaceChildren(named(lane.filter));
  say(parts.about, `${lane.queue ? "queue" : "topic"}${lane.again ? `, in wire form ${lane.again + 1}` : ""}`);
  setLine(parts.track, healthy, lane.rows);
  say(parts.health, `${count(healthy)} of ${count(lane.consumers)} healthy`);
  set(parts.holds, size(lane.memory_bytes), lane.disk_bytes ? `${size(lane.disk_bytes)} on disk` : "");
  set(parts.why, lane.gated ? "holds publishers back" : "");
  const head = body.firstChild;
  const more = lane.rows.length - SHOWN;
  const rows = body.open ? lane.rows : lane.rows.slice(0, SHOWN);
  keyed(body, [null, ...rows, ...(more > 0 ? [MORE] : [])], (row) => row?.key ?? "lane", (row) => {
    if (row === MORE) return makeMore(() => {
      body.open = !body.open;
      setLane(body, lane, feed);
    });
    return row === null ? head : makeRow();
  }, (element, row) => {
    if (row === MORE) say(element.button, body.open ? `Show the worst ${SHOWN}` : `Show ${count(more)} more`);
    else if (row !== null) setRow(element, row, feed);
  });
}

function makeMore(onclick) {
  const button = h("button", { type: "button", onclick });
  const row = h("tr", { role: "row", class: "more" }, h("td", { role: "cell", colspan: COLUMNS.length }, button));
  return Object.assign(row, { button });
}

function makeRow() {
  const link = h("a", {});
  const cells = makeCells();
  const about = h("span", { class: "small" });
  const row = h("tr", { role: "row" }, h("th", { scope: "row", class: "who", role: "rowheader" }, link, about), Object.values(cells));
  cells.where.append(place1());
  const badge = stateBadge();
  cells.state.append(badge);
  row.parts = { link, about, track: cells.where.firstChild, badge, behind: two(cells.behind), waits: two(cells.waits),
    holds: two(cells.holds), takes: two(cells.takes), why: two(cells.why), done: two(cells.done) };
  return row;
}

function setRow(element, row, feed) {
  const { parts } = element;
  if (parts.link.key !== row.key) {
    parts.link.key = row.key;
    parts.link.href = `#/consumer/${row.key}`;
    parts.link.replaceChildren(named(row.client));
  }
  say(parts.about, `${row.protocol}${row.consumer ? ` ${row.consumer}` : ""}`);
  setPlace(parts.track, row);
  setState(parts.badge, row.state, row.slow);
  const waits = row.lag_records > 0;
  const [arrow, word] = TRENDS[feed.trend(row.key)];
  set(parts.behind, waits ? duration(row.lag_s) : "–", waits ? `${arrow} ${word}` : "");
  set(parts.waits, waits ? size(row.lag_bytes) : "nothing", waits ? many(row.lag_records, "record") : "");
  set(parts.holds, size(row.held_bytes), row.stall_s ? `stalled publishers ${duration(row.stall_s)}` : "");
  set(parts.takes, waits && row.connected ? rate(row.drain_rate) : "–", waits && row.offered_rate ? `of ${rate(row.offered_rate)}` : "");
  set(parts.why, row.state === "away" ? "not connected" : causeWord(row.cause) || "–", row.state === "away" ? "" : row.why);
  const { last } = row;
  set(parts.done, last === null ? "nothing yet" : deedWord(last), last === null ? "" : ago(feed.frame.wall_s - last.wall_s));
  mark(parts.done[0], "data-grave", last === null ? null : deedGrave(last));
}

// -- the healthy, and the verdicts -----------------------------------------------------------------------------------

function makeCrowd() {
  const words = h("p", {});
  const list = h("dl", { class: "ages" });
  return {
    element: h("div", {}, words, list),
    update(frame) {
      const { band } = frame;
      const walked = band.ages.reduce((total, number) => total + number, 0);
      say(words, `${many(band.consumers, "consumer")} ${band.consumers === 1 ? "takes" : "take"} what comes. In 99 of 100 probes `
        + `the broker’s loop was late by less than ${duration(frame.late_p99_s)}: so long they wait for it.`
        + (band.walk_s > 2 * frame.period_s ? ` A walk through all of them takes ${duration(band.walk_s)}.` : ""));
      const rows = band.ages.map((number, at) => ({ number, word: at < band.bounds_s.length
        ? `less than ${duration(band.bounds_s[at])}` : `more than ${duration(band.bounds_s.at(-1))}` }));
      keyed(list, rows, (row) => row.word, (row) => {
        const [value, bar] = [h("dd", { class: "number" }), h("div", {})];
        return Object.assign(h("div", {}, h("dt", {}, row.word), value, h("dd", { class: "meter", "aria-hidden": "true" }, bar)), { value, bar });
      }, (element, row) => {
        say(element.value, count(row.number));
        place(element.bar, { width: `${walked ? (100 * row.number) / walked : 0}%` });
      });
    },
  };
}

export function drawDeeds(list, frame) {
  keyed(list, frame.deeds.slice(0, 8), (deed) => deed.number, (deed) => h("li", {},
    h("time", { datetime: new Date(deed.wall_s * 1000).toISOString() }, clock(deed.wall_s)),
    h("span", { class: "what", "data-grave": deedGrave(deed) }, deedWord(deed)),
    h("a", { href: `#/client/${encodeURIComponent(deed.client)}` }, named(deed.client)),
    h("span", { class: "text" }, h("bdi", {}, deed.text)),
  ), () => {});
  if (!frame.deeds.length) keyed(list, [0], String, () => h("li", { class: "note" }, "No verdict so far."), () => {});
}
