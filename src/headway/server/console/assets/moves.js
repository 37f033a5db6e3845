/** What an operator can do to a consumer, each after a question that says to whom, and what follows. */

import { h, named, say } from "./dom.js";
import { send } from "./request.js";

const MINUTES = [5, 15, 60];
const MOVES = [
  { move: "patience", word: "Give patience …", does: "Give patience", minutes: true, grave: "watch",
    effect: "For so long no rule of its policy judges it. The limits of memory and disk stay in force." },
  { move: "conflate", word: "Conflate now …", does: "Conflate", grave: "watch",
    effect: "What waits now is replaced by the latest record of each key. The others are counted as a gap, and it is told." },
  { move: "skip", word: "Skip to the end …", does: "Skip to the end", grave: "bad",
    effect: "All that waits for it now is left out, counted as a gap, and it is told. It goes on with new records." },
  { move: "kick", word: "Disconnect …", does: "Disconnect", grave: "bad",
    effect: "Its client’s connection is closed, with all its consumers. It may connect again at once." },
];

/** Returns the buttons for a consumer; `done` is called after a move. For who may not change there are none. */
export function moveButtons(consumer, house, done) {
  if (!house.me.may_change) return h("p", { class: "note" }, "You may look here, and change nothing.");
  const said = h("p", { class: "note", role: "status" });
  const buttons = MOVES.map((of) => h("button", { type: "button", id: `move-${of.move}`, "data-grave": of.grave,
    onclick: () => confirm(of, consumer, said, done) }, of.word));
  return h("div", { class: "moves" }, h("div", { class: "buttons" }, buttons), said);
}

function confirm(of, consumer, said, done) {
  const choice = of.minutes && h("select", { id: "minutes" }, MINUTES.map((minutes) => h("option", { value: `${minutes}m` }, `${minutes} minutes`)));
  const dialog = h("dialog", { "aria-labelledby": "question", "aria-describedby": "effect" },
    h("h2", { id: "question" }, `${of.does}: `, named(consumer.client)),
    h("p", { class: "small" }, "on ", named(consumer.filter)),
    h("p", { id: "effect" }, of.effect),
    choice && h("p", {}, h("label", { for: "minutes" }, "For "), choice),
    h("form", { method: "dialog", class: "buttons" },
      h("button", { value: "" }, "Cancel"),
      h("button", { value: "yes", "data-grave": of.grave, id: "confirm" }, of.does)));
  dialog.addEventListener("close", async () => {
    dialog.remove();
    document.getElementById(`move-${of.move}`)?.focus();
    if (dialog.returnValue !== "yes") return;
    say(said, "…");
    try {
      const answer = await send("/v1/moves", { move: of.move, key: consumer.key, ...(choice && { patience: choice.value }) });
      say(said, answer.text);
    } catch (error) {
      say(said, error.message);
    }
    done();
  });
  document.body.append(dialog);
  dialog.showModal();
}
