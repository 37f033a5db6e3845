/**
 * Views for browsers: a page's image of a keyed topic of a Headway broker, which stays true.
 *
 *     import { View } from "./headway-view.js";
 *     const flights = await View.open("ws://127.0.0.1:8083", "flights/#", { key: "/tailnum" });
 *     flights.get("N14228").json().delay;
 *     flights.size, flights.current, flights.staleMs, flights.asOf;
 *     for await (const change of flights.changes()) ...
 */

import { ChangeReader } from "./changes.js";
import { Entry } from "./entries.js";
import { Follower } from "./follower.js";
import { makeRequest } from "./request.js";

export { Entry };

const OPEN_MS = 30_000;

/** The broker refuses the view, or cannot be reached when it is opened. */
export class ViewError extends Error {
  name = "ViewError";
}

export class View {
  #follower;
  #filter;
  #clientId;
  #readers = new Set();
  #closed = false;
  #opened = () => {};

  /** Use `View.open`. */
  constructor(request) {
    this.#filter = request.filter;
    this.#clientId = request.clientId;
    this.#follower = new Follower(request, (changes) => this.#told(changes));
  }

  /**
   * Connects, and returns the view when it has the first snapshot.
   *
   * `options`: `key` (that of the `[[topic]]`, by default "topic"), `selector`, `conflate`, `policy`, `delta`,
   * `lease` ("30s"), `staleAfter` ("5s"), `clientId`, `WebSocket` (a class, where there is none of the platform's own).
   *
   * Throws TypeError if an argument is wrong, ViewError if the broker refuses the view, or there is no image after 30 s.
   * Later errors of the connection throw nothing: `whyStale` has them.
   */
  static async open(url, filter, options) {
    const view = new View(makeRequest(url, filter, options));
    try {
      await view.#open();
    } catch (error) {
      view.close();
      throw error;
    }
    return view;
  }

  async #open() {
    const follower = this.#follower;
    let timer;
    const first = new Promise((resolve, reject) => {
      this.#opened = resolve;
      timer = setTimeout(resolve, OPEN_MS);
      follower.run().catch(reject);
    });
    await first.finally(() => clearTimeout(timer));
    if (follower.refusal) throw new ViewError(`the broker refuses a view of ${this.#filter}: ${follower.refusal}`);
    if (follower.image.trueMs === null) {
      const why = follower.trouble || "the snapshot is not here yet";
      throw new ViewError(`no image of ${this.#filter} after ${OPEN_MS / 1000} s: ${why}`);
    }
  }

  /** Ends the view. Its last image stays readable, and iterations over its changes end. */
  close() {
    if (this.#closed) return;
    this.#closed = true;
    this.#follower.close();
    for (const reader of this.#readers) reader.close();
    this.#readers.clear();
  }

  // -- the image -------------------------------------------------------------------------------------------------

  /** Returns the entry of a key, or undefined. Without `topic`: throws RangeError if several topics have the key. */
  get(key, topic) {
    return this.#follower.image.entries.find(key, topic);
  }

  has(key, topic) {
    return this.get(key, topic) !== undefined;
  }

  get size() {
    return this.#follower.image.entries.of.size;
  }

  /** Returns all entries, as they are now. */
  values() {
    return [...this.#follower.image.entries.of.values()].values();
  }

  *keys() {
    for (const entry of this.values()) yield entry.key;
  }

  /** Yields pairs of key and entry. Where several topics have a key, it comes several times. */
  *entries() {
    for (const entry of this.values()) yield [entry.key, entry];
  }

  [Symbol.iterator]() {
    return this.entries();
  }

  forEach(call) {
    for (const entry of this.values()) call(entry, entry.key, this);
  }

  // -- how old it is ---------------------------------------------------------------------------------------------

  /** For how many milliseconds the image has not been confirmed; infinite before the first snapshot. */
  get staleMs() {
    return this.#follower.image.staleMs(this.#follower.now());
  }

  /** Whether the image is younger than `staleAfter`, whole, and connected. */
  get current() {
    return this.#follower.image.isCurrent(this.#follower.now());
  }

  /** Why the image is stale; empty while it is current. */
  get whyStale() {
    return this.#follower.image.whyStale;
  }

  /** The offset up to which all changes are in the image, and when it was last known to be the broker's state. */
  get asOf() {
    const { staleMs } = this;
    return { offset: this.#follower.image.offset, time: staleMs === Infinity ? null : new Date(Date.now() - staleMs) };
  }

  /** The name by which the broker knows the view: `headway why NAME`. */
  get clientId() {
    return this.#clientId;
  }

  // -- changes ---------------------------------------------------------------------------------------------------

  /**
   * Returns an asynchronous iterator over what changes from now on. Its first item says whether the image is current.
   * A reader that is slow gets the latest change of each key. `some(count)` gives all that has come since the last time.
   */
  changes() {
    const reader = new ChangeReader((one) => this.#readers.delete(one));
    const { image } = this.#follower;
    reader.add([this.current ? { type: "current", asOf: image.offset } : { type: "stale", why: image.whyStale }]);
    if (this.#closed) reader.close();
    else this.#readers.add(reader);
    return reader;
  }

  #told(changes) {
    for (const reader of this.#readers) reader.add(changes);
    if (this.#follower.refusal || this.#follower.image.trueMs !== null) this.#opened();
  }
}
