/** The feed: frames from the broker, the newest only, and what a page can tell from some of them in a row. */

const AGAIN_MS = 2000;
const SILENT_MS = 8000;
/** Trends are over so many frames. */
const KEPT = 8;
const STEADY = 0.03;

export class Feed {
  /** The newest frame; null before the first one. */
  frame = null;
  #listeners = new Set();
  #source = null;
  #waiting = new Map();
  #told = 0;

  /** `said(word)` is called with how the feed fares: "live", "late" or "lost". */
  constructor(said) {
    this.said = said;
    this.#open();
    setInterval(() => this.#look(), 1000);
  }

  onFrame(listener) {
    this.#listeners.add(listener);
    if (this.frame !== null) listener(this.frame);
    return () => this.#listeners.delete(listener);
  }

  #open() {
    this.#source = new EventSource("/v1/console/events");
    this.#source.addEventListener("frame", (event) => this.#take(JSON.parse(event.data)));
    this.#source.addEventListener("error", () => {
      this.said("lost");
      if (this.#source.readyState !== EventSource.CLOSED) return; // it tries again by itself
      this.#source.close();
      setTimeout(() => this.#open(), AGAIN_MS);
    });
  }

  #take(frame) {
    this.#told = Date.now();
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
