/** The link to a broker: connections of MQTT 5 over WebSocket, one at a time. */

import * as codec from "./codec.js";

/** Codes of CONNACK for whom the broker does not know, or does not let in: it would say the same again. */
const FINAL = new Set([0x84, 0x85, 0x86, 0x87, 0x8a, 0x8c]);
const REFUSED = 0x80;
const OPEN = 1;
const NOT_OPENED = "the WebSocket could not be opened: nobody listens there, or its listener does not let this page in";

/** The broker cannot be reached, or does not let the client in. */
export class LinkError extends Error {
  /** `retryAfterMs`: the time for which the broker has shut the client out. `final`: it would say the same again. */
  constructor(text, { retryAfterMs = 0, final = false } = {}) {
    super(text);
    this.retryAfterMs = retryAfterMs;
    this.final = final;
  }
}

export class Link {
  #request;
  #receiver;
  #socket = null;
  #number = 0;
  /** Gives an attempt to connect up. */
  #giveUp = () => {};

  /**
   * `receiver` has `received(record)`, `granted(number, refusal, user)` (the refusal is empty if there is none),
   * `ended(number)` for UNSUBACK, and `lost(why)`: the connection is over, and not because of `close`.
   */
  constructor(request, receiver) {
    this.#request = request;
    this.#receiver = receiver;
  }

  /** Connects. Rejects with LinkError. */
  connect(timeoutMs) {
    this.close();
    const { url, clientId, user, password, WebSocket } = this.#request;
    return new Promise((resolve, reject) => {
      const socket = new WebSocket(url, "mqtt");
      const decoder = new codec.Decoder();
      let why = NOT_OPENED;
      let greeted = false;
      const over = (error) => {
        clearTimeout(timer);
        if (this.#socket !== socket) return;
        reject(error);
        this.close();
        if (greeted) this.#receiver.lost(error.message);
      };
      const timer = setTimeout(() => over(new LinkError(`no answer within ${timeoutMs / 1000} s`)), timeoutMs);
      const greet = (packet) => {
        if (packet.type !== codec.CONNACK) throw new codec.CodecError("the broker's first packet is no CONNACK");
        if (packet.code >= REFUSED) return over(refused(packet));
        greeted = true;
        clearTimeout(timer);
        resolve();
      };
      this.#giveUp = () => {
        clearTimeout(timer);
        reject(new LinkError("the connection was closed"));
      };
      this.#socket = socket;
      socket.binaryType = "arraybuffer";
      socket.onopen = () => {
        why = "the connection was lost";
        socket.send(codec.connect(clientId, user, password));
      };
      socket.onmessage = ({ data }) => {
        try {
          for (const packet of decoder.feed(new Uint8Array(data))) {
            if (this.#socket !== socket) return;
            if (!greeted) greet(packet);
            else if (packet.type === codec.DISCONNECT) over(new LinkError(said(packet)));
            else this.#handle(packet);
          }
        } catch (error) {
          over(new LinkError(error.message));
          if (!(error instanceof codec.CodecError)) throw error;
        }
      };
      socket.onclose = ({ reason }) => over(new LinkError(reason || why));
      socket.onerror = () => {}; // onclose follows
    });
  }

  /** Sends SUBSCRIBE. Returns its number; null if there is no connection. */
  subscribe(filter, pairs) {
    return this.#send((number) => codec.subscribe(number, filter, pairs));
  }

  unsubscribe(filter) {
    return this.#send((number) => codec.unsubscribe(number, filter));
  }

  /** Says goodbye, if there is a connection, and forgets it. */
  close() {
    const socket = this.#socket;
    this.#socket = null;
    if (socket === null) return;
    this.#giveUp();
    if (socket.readyState === OPEN) socket.send(codec.disconnect());
    socket.close();
  }

  #send(encode) {
    if (this.#socket?.readyState !== OPEN) return null;
    this.#number = (this.#number % 0xffff) + 1;
    this.#socket.send(encode(this.#number));
    return this.#number;
  }

  #handle(packet) {
    switch (packet.type) {
      case codec.PUBLISH:
        return this.#receiver.received(packet);
      case codec.SUBACK: {
        const code = packet.codes.find((one) => one >= REFUSED);
        return this.#receiver.granted(packet.number, code === undefined ? "" : said({ ...packet, code }), packet.user);
      }
      case codec.UNSUBACK:
        return this.#receiver.ended(packet.number);
    }
  }
}

function refused(packet) {
  const seconds = Number(new Map(packet.user).get("retry-after-s")) || 0;
  return new LinkError(`refused: ${said(packet)}`, { retryAfterMs: seconds * 1000, final: FINAL.has(packet.code) });
}

function said({ reason, code }) {
  return reason || `the broker says code 0x${code.toString(16).padStart(2, "0")}`;
}
