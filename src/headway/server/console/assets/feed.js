/** The feed: frames from the broker, the newest only, and what a page can tell from some of them in a row. */

import { request } from "./login.js";

const AGAIN_MS = 2000;
const FRAME = "event: frame\ndata: ";
const SILENT_MS = 8000;
/** Trends are over so many frames. */
const KEPT = 8;
const STEADY = 0.03;

export class Feed {
  /** The newest frame; null before the first one. */
  frame = null;
  /** Frames that the broker made meanwhile, and that this page was not given because it had not taken the last one. */
  missed = 0;
  #last = 0;
  #listeners = new Set();
  #streams = false;
  #again = 0;
  #waiting = new Map();
  #told = 0;

  /** `said(word)` is called with how the feed fares: "live", "late" or "lost". */
  constructor(said) {
    this.said = said;
    this.open();
    setInterval(() => this.#look(), 1000);
  }

  onFrame(listener) {
    this.#listeners.add(listener);
    if (this.frame !== null) listener(this.frame);
    return () => this.#listeners.delete(listener);
  }

  /** Begins at once, if no stream is open. */
  open() {
    clearTimeout(this.#again);
    if (!this.#streams) this.#stream();
  }

  /** Takes frames until the stream ends, and begins anew a little later. An EventSource could not name who looks. */
  async #stream() {
    this.#streams = true;
    this.#last = 0; // frames are missed in a stream, not between two of them
    try {
      const answer = await request("/v1/console/events");
      if (!answer.ok) throw new Error(`the broker answered with ${answer.status}`);
      await this.#read(answer.body.pipeThrough(new TextDecoderStream()).getReader());
    } catch {
      // it is tried again
    }
    this.#streams = false;
    this.said("lost");
    this.#again = setTimeout(() => this.open(), AGAIN_MS);
  }

  async #read(reader) {
    let begun = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const events = (begun + value).split("\n\n");
      begun = events.pop();
      for (const event of events) this.#event(event);
    }
  }

  #event(text) {
    if (text.startsWith(FRAME)) this.#take(JSON.parse(text.slice(FRAME.length)));
  }

  #take(frame) {
    this.#told = Date.now();
    if (this.#last) this.missed += Math.max(0, frame.number - this.#last - 1);
    this.#last = frame.number;
    this.frame = frame;
    this.#remember(frame.rows);
    this.said("live");
    for (const listener of this.#listeners) listener(frame);
  }

  #look() {
    if (this.#told && Date.now() - this.#told > SILENT_MS) this.said("late");
  }

  #remember(rows) {
    const kept = new Map();
    for (const row of rows) {
      const before = this.#waiting.get(row.key) ?? [];
      kept.set(row.key, [...before.slice(1 - KEPT), [row.lag_bytes, row.lag_s]]);
    }
    this.#waiting = kept;
  }

  /** Returns whether what waits for a consumer grows (1), shrinks (-1) or stays (0) of late. */
  trend(key) {
    const seen = this.#waiting.get(key) ?? [];
    if (seen.length < 3) return 0;
    const [[firstBytes, firstS], [lastBytes, lastS]] = [seen[0], seen.at(-1)];
    const [before, after] = lastBytes || firstBytes ? [firstBytes, lastBytes] : [firstS, lastS];
    const change = (after - before) / Math.max(before, after, 1);
    return Math.abs(change) < STEADY ? 0 : Math.sign(change);
  }
}
