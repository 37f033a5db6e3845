/**
 * The packets of MQTT 5 that a view needs: it writes CONNECT, SUBSCRIBE, UNSUBSCRIBE and DISCONNECT, and reads CONNACK,
 * PUBLISH at QoS 0, SUBACK, UNSUBACK and DISCONNECT.
 *
 * A WebSocket's messages need not be aligned with packets, so `Decoder` keeps what is not whole yet.
 */

export const CONNACK = 2, PUBLISH = 3, SUBACK = 9, UNSUBACK = 11, PINGRESP = 13, DISCONNECT = 14;
const CONNECT = 1, SUBSCRIBE = 8, UNSUBSCRIBE = 10;
const CONTENT_TYPE = 0x03, REASON_STRING = 0x1f, USER_PROPERTY = 0x26;
const CLEAN_START = 0x02, HAS_PASSWORD = 0x40, HAS_USER = 0x80;
const KEEP_ALIVE_S = 60;
const NEVER_RETAINED = 2 << 4;

/** The size of a property's value, by its identifier: bytes, or the kind of it. */
const SIZES = new Map([
  ...[0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2a].map((id) => [id, 1]),
  ...[0x13, 0x21, 0x22, 0x23].map((id) => [id, 2]),
  ...[0x02, 0x11, 0x18, 0x27].map((id) => [id, 4]),
  [0x0b, "number"],
  ...[0x03, 0x08, 0x09, 0x12, 0x15, 0x16, 0x1a, 0x1c, 0x1f].map((id) => [id, "text"]),
  [USER_PROPERTY, "pair"],
]);

const utf8 = new TextEncoder();
const reading = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The bytes are no MQTT that a broker would send to a view. */
export class CodecError extends Error {}

// -- writing -----------------------------------------------------------------------------------------------------

/** A connection that begins anew, and ends with its session. `user`, `password`: null if there are none. */
export function connect(clientId, user, password) {
  const flags = CLEAN_START | (user === null ? 0 : HAS_USER) | (password === null ? 0 : HAS_PASSWORD);
  const login = [user, password].filter((one) => one !== null).map(text);
  return packet(CONNECT << 4, text("MQTT"), [5, flags], u16(KEEP_ALIVE_S), [0], text(clientId), ...login);
}

/** `pairs`: user properties, as [name, value]. Retained records are not asked for. */
export function subscribe(number, filter, pairs) {
  const said = pairs.flatMap(([name, value]) => [[USER_PROPERTY], text(name), text(value)]);
  const size = said.reduce((sum, part) => sum + part.length, 0);
  return packet((SUBSCRIBE << 4) | 2, u16(number), varint(size), ...said, text(filter), [NEVER_RETAINED]);
}

export function unsubscribe(number, filter) {
  return packet((UNSUBSCRIBE << 4) | 2, u16(number), [0], text(filter));
}

export function disconnect() {
  return Uint8Array.of(DISCONNECT << 4, 0);
}

function packet(first, ...parts) {
  const size = parts.reduce((sum, part) => sum + part.length, 0);
  const head = [first, ...varint(size)];
  const bytes = new Uint8Array(head.length + size);
  let at = 0;
  for (const part of [head, ...parts]) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

function u16(value) {
  return [value >> 8, value & 0xff];
}

function varint(value) {
  const bytes = [];
  do {
    bytes.push((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
    value >>= 7;
  } while (value > 0);
  return bytes;
}

function text(value) {
  const bytes = utf8.encode(value);
  if (bytes.length > 0xffff) throw new RangeError(`${value.slice(0, 40)}... has more than 65,535 bytes`);
  const all = new Uint8Array(2 + bytes.length);
  all.set(u16(bytes.length));
  all.set(bytes, 2);
  return all;
}

// -- reading -----------------------------------------------------------------------------------------------------

/**
 * Cuts a stream of bytes into packets: `{type, ...}` with `user` ([name, value] pairs) and, by type, `code` and
 * `reason`, `number` and `codes`, or `topic`, `payload` and `contentType`.
 */
export class Decoder {
  #rest = new Uint8Array(0);

  /** Yields the packets that these bytes complete. Throws CodecError. */
  *feed(bytes) {
    let at = 0;
    const all = joined(this.#rest, bytes);
    for (;;) {
      const found = frame(all, at);
      if (found === null) break;
      at = found.end;
      this.#rest = all.subarray(at);
      yield read(all[found.start], new Reader(all.subarray(found.body, found.end)));
    }
    this.#rest = all.slice(at);
  }
}

function joined(first, second) {
  if (!first.length) return second;
  const all = new Uint8Array(first.length + second.length);
  all.set(first);
  all.set(second, first.length);
  return all;
}

/** Returns where a packet begins, where its body does, and where it ends; null if it is not whole. */
function frame(bytes, start) {
  let size = 0;
  for (let at = start + 1, shift = 0; at < bytes.length; at++, shift += 7) {
    if (shift > 21) throw new CodecError("a packet's length has more than four bytes");
    size |= (bytes[at] & 0x7f) << shift;
    if (bytes[at] < 0x80) return at + 1 + size <= bytes.length ? { start, body: at + 1, end: at + 1 + size } : null;
  }
  return null;
}

function read(first, body) {
  const type = first >> 4;
  switch (type) {
    case CONNACK: {
      body.u8();
      return { type, code: body.u8(), ...body.properties() };
    }
    case PUBLISH: {
      if (first & 6) throw new CodecError("a record came at QoS 1 or 2, which nobody asked for");
      return { type, topic: body.text(), ...body.properties(), payload: body.rest() };
    }
    case SUBACK:
    case UNSUBACK:
      return { type, number: body.u16(), ...body.properties(), codes: [...body.rest()] };
    case PINGRESP:
      return { type };
    case DISCONNECT:
      return { type, code: body.left ? body.u8() : 0, ...(body.left ? body.properties() : NOTHING) };
    default:
      throw new CodecError(`a packet of type ${type} came`);
  }
}

const NOTHING = { user: [], reason: "", contentType: null };

class Reader {
  #at = 0;
  #bytes;

  constructor(bytes) {
    this.#bytes = bytes;
  }

  get left() {
    return this.#bytes.length - this.#at;
  }

  take(count) {
    if (count > this.left) throw new CodecError("a packet ends in the middle of a field");
    this.#at += count;
    return this.#bytes.subarray(this.#at - count, this.#at);
  }

  u8() {
    return this.take(1)[0];
  }

  u16() {
    const [high, low] = this.take(2);
    return (high << 8) | low;
  }

  text() {
    try {
      return reading.decode(this.take(this.u16()));
    } catch (error) {
      throw error instanceof CodecError ? error : new CodecError("a text is not UTF-8");
    }
  }

  varint() {
    let value = 0;
    for (let shift = 0; shift <= 21; shift += 7) {
      const byte = this.u8();
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw new CodecError("a number has more than four bytes");
  }

  /** Returns what is left, as bytes of its own: a small payload would else keep all that came with it. */
  rest() {
    return this.take(this.left).slice();
  }

  properties() {
    const said = { user: [], reason: "", contentType: null };
    const size = this.varint();
    if (size > this.left) throw new CodecError("a packet ends in the middle of its properties");
    const end = this.#at + size;
    while (this.#at < end) {
      const id = this.varint();
      const kind = SIZES.get(id);
      if (kind === "pair") said.user.push([this.text(), this.text()]);
      else if (id === REASON_STRING) said.reason = this.text();
      else if (id === CONTENT_TYPE) said.contentType = this.text();
      else if (kind === "text") this.take(this.u16());
      else if (kind === "number") this.varint();
      else if (kind !== undefined) this.take(kind);
      else throw new CodecError(`there is no property ${id}`);
    }
    if (this.#at > end) throw new CodecError("a property goes beyond the end of the properties");
    return said;
  }
}
