/** The console: one page, a view per address behind `#/`, and a feed that all views share. */

import { board } from "./board.js";
import { client, consumer } from "./consumer.js";
import { h, mark, say, shown } from "./dom.js";
import { Feed } from "./feed.js";
import { many } from "./format.js";
import { policies } from "./policies.js";
import { pools } from "./pools.js";
import { publishers } from "./publishers.js";
import { queues } from "./queues.js";
import { reports } from "./reports.js";
import { hasLogin, onLogin, signOut } from "./login.js";
import { ask } from "./request.js";
import { verdicts } from "./verdicts.js";

/** By the address: its word, the view, and whether it is not in the head. */
const VIEWS = [
  ["", "Board", board],
  ["queues", "Queues & topics", queues],
  ["publishers", "Publishers", publishers],
  ["pools", "Pools & disk", pools],
  ["policies", "Policies", policies],
  ["verdicts", "Last night", verdicts],
  ["reports", "Reports", reports],
  ["consumer", "Consumer", consumer, true],
  ["client", "Client", client, true],
];
const LINK = { live: "live", late: "the broker is silent", lost: "not connected; trying again" };

const main = document.getElementById("main");
const link = document.getElementById("link");
const views = document.getElementById("views");
const feed = new Feed((word) => {
  say(link, LINK[word]);
  mark(link, "data-grave", word === "live" ? "good" : "bad");
});
/** What every view is given: the feed, and who looks (`may_change` is false until that is known). */
const house = { feed, me: { user: "", may_change: false } };
let close = () => {};

function go() {
  if (location.hash && !location.hash.startsWith("#/")) return; // the link that skips to the view
  const [name, ...rest] = location.hash.slice(2).split("/");
  const [, word, view] = VIEWS.find(([known]) => known === name) ?? VIEWS[0];
  close();
  main.replaceChildren();
  main.className = `view ${name || "board"}`;
  document.title = `${word} – Headway`;
  for (const item of views.querySelectorAll("a")) mark(item, "aria-current", item.hash.slice(2) === name ? "page" : null);
  close = view(main, house, rest.map(decodeURIComponent)) ?? (() => {});
}

for (const [name, word, , hidden] of VIEWS) {
  if (!hidden) views.append(h("li", {}, h("a", { href: `#/${name}` }, word)));
}
feed.onFrame((frame) => {
  say(document.getElementById("broker"), `${shown(frame.name)} ${frame.version}`);
  if (feed.missed) say(document.getElementById("missed"), `this page missed ${many(feed.missed, "frame")}`);
});
document.getElementById("leave").addEventListener("click", signOut);
async function learnWho() {
  try {
    house.me = await ask("/v1/console/me");
  } catch (error) {
    say(link, error.message);
  }
  const leave = document.getElementById("leave");
  leave.hidden = !hasLogin();
  leave.title = house.me.user ? `You are ${shown(house.me.user)}` : "";
}
onLogin(async () => {
  await learnWho();
  go();
  main.focus();
  feed.open();
});
await learnWho();
addEventListener("hashchange", () => {
  go();
  main.focus();
});
go();
