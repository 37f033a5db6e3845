/**
 * Readers of the changes of a view, for `for await`.
 *
 * A page cannot stop reading its WebSocket, so nothing can wait in the broker for a slow reader. Instead a newer change
 * of a key takes the place of one that was not read yet. So a quick reader gets each change, a slow one the latest of
 * each key, and a reader never holds more changes than there are keys.
 */

import { idOf } from "./entries.js";

const STATE = Symbol("stale or current");

export class ChangeReader {
  /** The changes by what they are about, in order. */
  #queued = new Map();
  #waiting = [];
  #closed = false;
  #leave;

  /** `leave` is called when nobody will read on. */
  constructor(leave) {
    this.#leave = leave;
  }

  add(changes) {
    for (const change of changes) this.#put(change);
    this.#wake();
  }

  /** Ends the iteration, once it has read what is queued. */
  close() {
    this.#closed = true;
    this.#wake();
  }

  /** Returns the next changes, at most so many, and waits for the first; none if there are no more to come. */
  async some(count = Infinity) {
    while (!this.#queued.size) {
      if (this.#closed) return [];
      await new Promise((resolve) => this.#waiting.push(resolve));
    }
    const taken = [];
    for (const [about, change] of this.#queued) {
      if (taken.length >= count) break;
      this.#queued.delete(about);
      taken.push(change);
    }
    return taken;
  }

  async next() {
    const [change] = await this.some(1);
    return change === undefined ? { done: true, value: undefined } : { done: false, value: change };
  }

  /** Called by `for await` when it is left early. */
  async return(value) {
    this.#leave(this);
    this.#queued.clear();
    this.close();
    return { done: true, value };
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  #wake() {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  #put(change) {
    if (change.type === "stale" || change.type === "current") {
      this.#queued.delete(STATE); // the later one says how it is now, behind all that came before it
      this.#queued.set(STATE, change);
      return;
    }
    const isGap = change.type === "gap";
    const about = isGap ? `\0${change.reason}` : idOf(change.topic, change.key);
    const earlier = this.#queued.get(about);
    const merged = earlier === undefined ? change : isGap ? sum(earlier, change) : merge(earlier, change);
    if (merged === null) this.#queued.delete(about);
    else this.#queued.set(about, merged);
  }
}

function sum(first, then) {
  return { ...then, records: first.records + then.records };
}

/** Returns one change in the place of two of a key; null if they undo each other. */
function merge(first, then) {
  if (then.type !== "put" && first.before === undefined) return null;
  return { ...then, before: first.before };
}
