/** The latest record of a key. */
export class Entry {
  readonly topic: string;
  /** The value that the topic is keyed by, as text; null for records that have none. */
  readonly key: string | null;
  readonly payload: Uint8Array;
  /** The record's number in the broker; of two entries the later one has the higher. */
  readonly offset: number;
  /** The publisher's user properties. */
  readonly properties: readonly (readonly [name: string, value: string])[];
  readonly contentType: string | null;
  text(): string;
  /** Returns the payload, decoded. Throws SyntaxError if it is not JSON. */
  json(): any;
}

export interface Put { type: "put"; topic: string; key: string | null; entry: Entry; before: Entry | undefined }
export interface Delete { type: "delete"; topic: string; key: string | null; before: Entry; why: "" }
export interface OutOfFocus { type: "out_of_focus"; topic: string; key: string | null; before: Entry; why: string }
/** Records were left out for this client. `records` is 0 if the broker does not know how many. */
export interface Gap { type: "gap"; records: number; reason: string; last: number }
export interface Stale { type: "stale"; why: string }
export interface Current { type: "current"; asOf: number }
export type Change = Put | Delete | OutOfFocus | Gap | Stale | Current;

export interface ChangeReader extends AsyncIterableIterator<Change> {
  /** Returns the next changes, at most so many, and waits for the first; none if there are no more to come. */
  some(count?: number): Promise<Change[]>;
}

export interface ViewOptions {
  /** The key of the `[[topic]]`: "topic", "property:NAME", or a JSON pointer. By default "topic". */
  key?: string;
  selector?: string;
  conflate?: string;
  policy?: string;
  /** The broker sends only the fields that change of a key, and the view merges them. By default false. */
  delta?: boolean;
  /** By default "30s". */
  lease?: string;
  /** By default "5s". */
  staleAfter?: string;
  clientId?: string;
  /** A WebSocket class, where there is none of the platform's own. */
  WebSocket?: unknown;
}

/** The broker refuses the view, or cannot be reached when it is opened. */
export class ViewError extends Error {}

export class View implements Iterable<[string | null, Entry]> {
  private constructor();
  static open(url: string, filter: string, options?: ViewOptions): Promise<View>;
  close(): void;
  get(key: string | null, topic?: string): Entry | undefined;
  has(key: string | null, topic?: string): boolean;
  readonly size: number;
  keys(): IterableIterator<string | null>;
  values(): IterableIterator<Entry>;
  entries(): IterableIterator<[string | null, Entry]>;
  forEach(call: (entry: Entry, key: string | null, view: View) => void): void;
  [Symbol.iterator](): IterableIterator<[string | null, Entry]>;
  /** For how many milliseconds the image has not been confirmed; infinite before the first snapshot. */
  readonly staleMs: number;
  readonly current: boolean;
  readonly whyStale: string;
  readonly asOf: { offset: number; time: Date | null };
  readonly clientId: string;
  changes(): ChangeReader;
}
