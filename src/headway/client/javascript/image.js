/**
 * The image that a view keeps: the latest record per key, as one subscription tells it. No I/O and no clock: it is given
 * what came and the time, and returns the changes.
 *
 * Rules (those of the Python client's image.py):
 * - A snapshot is gathered aside and takes the image's place when it is whole (`proved`). A cut in the middle of it
 *   leaves the image as it was.
 * - Records of a subscription come in the order of their offsets. One that is not behind the last one is a repetition.
 * - A gap that conflation has not made means that a change is missing. The image stands still from there on, stale,
 *   until it gets a new snapshot (`wantsSnapshot`). A gap of records from before the snapshot is none.
 * - While a snapshot or the changes after a cut are gathered, no gap is told. The image has stood still since before, and
 *   is told to be stale; what has changed is told when it is whole. A gap only decides whether that needs a snapshot.
 * - A delta is merged into the entry that the subscription has of its key, which the broker sees to. Without one, a
 *   change is missing.
 * - The image is *proved* when the broker says that everything up to a time was sent. Its age counts from the last
 *   proof. It is current while it is connected, whole and not older than `staleAfterMs`.
 *
 * Changes are objects with a `type`: put, delete, out_of_focus, gap, stale, current.
 */

import { Entries, Entry, idOf } from "./entries.js";
import { merged } from "./merge.js";

const CONFLATED = "conflated";

export class Image {
  entries = new Entries();
  /** The offset up to which the image was proved. Later changes may be in it. */
  offset = 0;
  /** The time at which the image was last known to be the broker's state; null: there is none yet. */
  trueMs = null;
  whyStale = "there was no snapshot yet";
  /** A change is missing. */
  wantsSnapshot = false;
  #current = false;
  #connected = false;
  /** The image that is being gathered; null: it is in its place. */
  #next = null;
  /** The offset of the last record of this subscription. */
  #last = 0;
  /** The offset as of which the snapshot is. */
  #floor = 0;
  #resumes = false;
  /** The offset up to which all changes have to come before the snapshot is whole; null: not known yet. */
  #wholeAt = null;

  constructor(staleAfterMs) {
    this.staleAfterMs = staleAfterMs;
  }

  // -- subscriptions ---------------------------------------------------------------------------------------------

  /** A subscription begins that sends a snapshot first. */
  begin() {
    this.#start(new Entries(), 0, false);
  }

  /** A subscription begins that sends all changes behind `offset`. Some may be in the image already. */
  resume() {
    this.#start(this.entries.copy(), this.offset, true);
  }

  #start(next, offset, resumes) {
    this.#connected = true;
    this.wantsSnapshot = false;
    this.#wholeAt = null;
    this.#resumes = resumes;
    this.#next = next;
    this.#last = this.#floor = offset;
  }

  /** The broker says its last offset when it grants the subscription: a snapshot is as of then or later. */
  granted(offset) {
    if (!this.#resumes) this.#floor = offset;
  }

  /** The subscription is over. */
  cut(why) {
    this.#connected = false;
    this.#next = null;
    return this.#stale(why);
  }

  // -- records ---------------------------------------------------------------------------------------------------

  put(entry) {
    const entries = this.#takes(entry.offset);
    if (entries === null) return [];
    const before = entries.put(entry);
    return entries === this.entries ? [{ type: "put", key: entry.key, topic: entry.topic, entry, before }] : [];
  }

  /** The payload of the entry is what changes of its key: a JSON merge patch of the latest record. */
  patch(delta) {
    const entries = this.#takes(delta.offset);
    if (entries === null) return [];
    const { topic, key, offset, properties, contentType } = delta;
    const known = entries.of.get(idOf(topic, key));
    const payload = known === undefined ? null : merged(known.payload, delta.payload);
    if (payload === null) return this.#miss("a delta came that nothing is known to merge with");
    const entry = new Entry(topic, key, payload, offset, properties, contentType);
    const before = entries.put(entry);
    return entries === this.entries ? [{ type: "put", key, topic, entry, before }] : [];
  }

  delete(topic, key, offset) {
    return this.#take("delete", topic, key, offset, "");
  }

  outOfFocus(topic, key, offset, why) {
    return this.#take("out_of_focus", topic, key, offset, why);
  }

  /** Records were left out. Called before the record that told of it is put. */
  gap(gap) {
    if (!this.#connected || this.wantsSnapshot) return [];
    const told = this.#next === null ? [{ type: "gap", ...gap }] : [];
    if (gap.reason === CONFLATED || (gap.last && gap.last <= this.#floor)) return told;
    return [...told, ...this.#miss(`records are missing (${gap.reason})`)];
  }

  /** A change is missing, so no other is believed. */
  #miss(why) {
    this.wantsSnapshot = true;
    this.#next = null;
    return this.#stale(why);
  }

  /** Returns the entries that a record with this offset is for; null if it is for none. */
  #takes(offset) {
    if (!this.#connected || this.wantsSnapshot || offset <= this.#last) return null;
    this.#last = offset;
    return this.#next ?? this.entries;
  }

  #take(type, topic, key, offset, why) {
    const entries = this.#takes(offset);
    const before = entries?.take(topic, key);
    if (before === undefined || entries !== this.entries) return [];
    return [{ type, key, topic, before, why }];
  }

  // -- time ------------------------------------------------------------------------------------------------------

  /**
   * The broker says what it had sent at `atMs` or later: `{offset, ageMs, last}`. All of that has come.
   *
   * A snapshot leaves out keys that change while it is sent, for these changes come behind it. So it is whole when all
   * changes have come that there were when it was first said to be sent.
   */
  proved(sent, atMs, now) {
    if (!this.#connected || this.wantsSnapshot) return [];
    if (this.#next === null) {
      this.#prove(sent.offset, atMs - sent.ageMs);
      return this.look(now);
    }
    this.#wholeAt ??= sent.last;
    if (Math.max(sent.offset, this.#last) < this.#wholeAt) return [];
    const old = this.entries;
    this.entries = this.#next;
    this.#next = null;
    this.offset = 0; // those of another life of the broker are no measure
    this.#prove(sent.offset, atMs - sent.ageMs);
    return [...differences(old, this.entries), ...this.look(now)];
  }

  #prove(offset, trueMs) {
    this.offset = Math.max(this.offset, offset);
    this.trueMs = Math.max(trueMs, this.trueMs ?? trueMs);
  }

  /** Tells if the image has become stale or current with time. */
  look(now) {
    if (!this.whole) return [];
    if (this.staleMs(now) > this.staleAfterMs) {
      return this.#stale(`the broker has not confirmed it for ${this.staleAfterMs / 1000} s`);
    }
    if (this.#current) return [];
    this.#current = true;
    this.whyStale = "";
    return [{ type: "current", asOf: this.offset }];
  }

  /** Whether the image is that of the subscription there is, and not the last one of an earlier one. */
  get whole() {
    return this.#connected && !this.wantsSnapshot && this.#next === null;
  }

  /** Returns how old the image is; infinite without one. */
  staleMs(now) {
    return this.trueMs === null ? Infinity : Math.max(0, now - this.trueMs);
  }

  isCurrent(now) {
    return this.#current && this.staleMs(now) <= this.staleAfterMs;
  }

  #stale(why) {
    const was = this.#current;
    this.#current = false;
    this.whyStale = why;
    return was ? [{ type: "stale", why }] : [];
  }
}

/** Yields the changes that lead from one image to another. */
function* differences(old, next) {
  for (const [id, before] of old.of) {
    if (!next.of.has(id)) yield { type: "delete", key: before.key, topic: before.topic, before, why: "" };
  }
  for (const [id, entry] of next.of) {
    const before = old.of.get(id);
    if (before === undefined || !before.equals(entry)) {
      yield { type: "put", key: entry.key, topic: entry.topic, entry, before };
    }
  }
}
