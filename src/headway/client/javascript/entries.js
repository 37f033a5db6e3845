/** The entries of an image: the latest record of each key. A key is one of its topic. */

const decoder = new TextDecoder();

/** The latest record of a key. */
export class Entry {
  /** `properties`: the publisher's user properties, as [name, value]. */
  constructor(topic, key, payload, offset, properties = [], contentType = null) {
    this.topic = topic;
    this.key = key;
    this.payload = payload;
    this.offset = offset;
    this.properties = properties;
    this.contentType = contentType;
  }

  text() {
    return decoder.decode(this.payload);
  }

  /** Returns the payload, decoded. Throws SyntaxError if it is not JSON. */
  json() {
    return JSON.parse(this.text());
  }

  /** Tells whether the other one is the same record. In another life of the broker an offset means another record. */
  equals(other) {
    return this.offset === other.offset && this.payload.length === other.payload.length &&
      this.payload.every((byte, at) => byte === other.payload[at]);
  }
}

/** Returns a text of its own for each pair of topic and key. No topic has a zero in it. */
export function idOf(topic, key) {
  return key === null ? topic : `${topic}\0${key}`;
}

export class Entries {
  /** The entries by their ids. */
  of = new Map();
  /** The topics that have a key: nearly always one. */
  #topics = new Map();

  copy() {
    const other = new Entries();
    other.of = new Map(this.of);
    other.#topics = new Map(this.#topics);
    return other;
  }

  /** Puts an entry in its place. Returns the one that was there, or undefined. */
  put(entry) {
    const id = idOf(entry.topic, entry.key);
    const before = this.of.get(id);
    if (before === undefined) {
      this.#topics.set(entry.key, [...(this.#topics.get(entry.key) ?? []), entry.topic]);
    }
    this.of.set(id, entry);
    return before;
  }

  /** Removes an entry. Returns it, or undefined. */
  take(topic, key) {
    const id = idOf(topic, key);
    const before = this.of.get(id);
    if (before !== undefined) {
      this.of.delete(id);
      const others = this.#topics.get(key).filter((one) => one !== topic);
      if (others.length) this.#topics.set(key, others);
      else this.#topics.delete(key);
    }
    return before;
  }

  /** Returns the entry of a key, or undefined. Without a topic: throws RangeError if several topics have the key. */
  find(key, topic) {
    if (topic !== undefined) return this.of.get(idOf(topic, key));
    const topics = this.#topics.get(key) ?? [];
    if (topics.length > 1) {
      throw new RangeError(`${JSON.stringify(key)} is a key of ${topics.length} topics: say get(key, topic)`);
    }
    return topics.length ? this.of.get(idOf(topics[0], key)) : undefined;
  }
}
