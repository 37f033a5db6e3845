/** Words and shapes of states, causes and actions. A state is told by its shape, its word and its colour. */

import { h, mark, say } from "./dom.js";

/** By state: its shape, its word, how grave it is, and what it means. */
const STATES = {
  ok: ["●", "healthy", "good", "It takes what comes."],
  behind: ["◐", "behind", "watch", "Records wait for it; no rule has fired."],
  slow: ["▲", "slow", "bad", "A rule has fired, and it has not recovered."],
  conflating: ["◆", "conflated", "watch", "It gets the latest record per key."],
  discarding: ["✕", "discarding", "bad", "Records are left out for it."],
  offline: ["▣", "on disk", "watch", "What waits for it is on disk, and is sent from there."],
  away: ["○", "away", "quiet", "Its client is not connected; its records are kept."],
  gone: ["–", "gone", "quiet", "It has ended."],
};
const CAUSES = {
  application: "application",
  network: "network",
  over_subscription: "over-subscribed",
  producer_burst: "publisher’s burst",
  broker: "the broker itself",
  operator: "an operator",
};
const ACTIONS = {
  notify: "reported",
  conflate: "conflated",
  discard: "records left out",
  offline: "put on disk",
  block_publishers: "publishers held back",
  return: "records taken back",
  close_consumer: "asked to close",
  disconnect: "disconnected",
  delete_subscription: "unsubscribed",
  skip: "skipped to the end",
  patience: "given patience",
};

/** Returns the badge of a state, to be set by `setState`. */
export function stateBadge() {
  return h("span", { class: "badge" }, h("span", { class: "shape", "aria-hidden": "true" }), h("span", {}));
}

export function setState(badge, name, slow = false) {
  const [shape, word, grave, about] = STATES[name] ?? ["?", name, "watch", ""];
  say(badge.firstChild, shape);
  say(badge.lastChild, slow && name !== "slow" ? `${word}, slow` : word);
  mark(badge, "data-grave", slow && name !== "away" ? "bad" : grave);
  mark(badge, "title", about);
}

export function graveOf(name, slow) {
  return slow && name !== "away" ? "bad" : (STATES[name] ?? STATES.behind)[2];
}

export function causeWord(cause) {
  return CAUSES[cause] ?? cause;
}

export function actionWord(action) {
  return ACTIONS[action] ?? action;
}

/** What a verdict did, in words: "disconnected", "would be disconnected", "back within limits". */
export function deedWord(deed) {
  if (deed.kind === "clear") return "recovered";
  return deed.enforced ? actionWord(deed.action) : `would be: ${actionWord(deed.action)}`;
}

export function deedGrave(deed) {
  if (deed.kind === "clear") return "good";
  if (deed.cause === "operator") return "accent";
  return ["disconnect", "delete_subscription", "discard", "close_consumer"].includes(deed.action) ? "bad" : "watch";
}
