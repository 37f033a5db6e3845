/**
 * The follower keeps an image true: it connects, subscribes, asks whether the image is current, and comes back.
 *
 * Theory of operation (that of the Python client's follower.py). Each *beat* sends the same SUBSCRIBE again. The broker
 * renews the lease, and says in its SUBACK how old the oldest record is that it has not sent. What was sent came before
 * the answer, so when the answer is here, the image was the truth when the question left, less that age. So the image's
 * age is known whatever happens to the network, the broker or this page; it grows while no answer comes.
 *
 * After a cut the view asks for the changes behind its offset, which the broker still has if the topic is recorded. A
 * broker that was started again may have lost records that it had sent; so offsets count in one life of the broker.
 *
 * Without an answer for `SILENT_TIMES` the time after which an image is stale, the connection is given up, but not before
 * a second look: it may be this page that stood still, and then the answer is here and was not read yet.
 */

import { makeClock } from "./clock.js";
import { readGrant, tell } from "./events.js";
import { Image } from "./image.js";
import { Link, LinkError } from "./link.js";

const SILENT_TIMES = 3;
/** The time between two questions while a snapshot is gathered, whose end the answer tells. */
const GATHERING_MS = 50;
const CONNECT_MS = 10_000;
const BACKOFF_MIN_MS = 100, BACKOFF_MAX_MS = 30_000;
const SNAPSHOT = ["snapshot", "true"];

export class Follower {
  /** Why the broker refuses the view; empty if it does not. */
  refusal = "";
  /** Why there is no connection; empty if there is one. */
  trouble = "not connected yet";
  now = makeClock();
  #request;
  #told;
  #link;
  #closed = false;
  /** Ends what the follower waits for. */
  #wake = () => {};
  /** Why the connection was lost; null while it is there. */
  #lost = null;
  /** SUBSCRIBEs without an answer: when they were sent, by their numbers. */
  #asked = new Map();
  #askedMs = 0;
  #heardMs = 0;
  /** The SUBSCRIBE that began the subscription, until it is answered. */
  #first = null;
  /** The UNSUBSCRIBE after which a new subscription begins. */
  #ending = null;
  /** The life of the broker that the image's offsets belong to; empty if it cannot be resumed from them. */
  #life = "";
  /** The option of the subscription that says what comes first. */
  #start = SNAPSHOT;
  #failures = 0;

  /** `told` is called with all changes. */
  constructor(request, told) {
    this.image = new Image(request.staleAfterMs);
    this.#request = request;
    this.#told = told;
    this.#link = new Link(request, this);
  }

  /** Follows the topic until it is closed. */
  async run() {
    while (!this.#closed) {
      let waitMs = 0;
      try {
        await this.#link.connect(CONNECT_MS);
        this.trouble = "";
        this.trouble = await this.#follow();
      } catch (error) {
        if (!(error instanceof LinkError)) throw error;
        this.trouble = error.message;
        waitMs = error.retryAfterMs;
        this.refusal = error.final ? this.trouble : "";
      }
      if (this.#closed) return;
      this.#told(this.image.cut(this.trouble));
      await this.#pause(Math.max(waitMs, this.#backoffMs()));
    }
  }

  close() {
    this.#closed = true;
    this.#link.close();
    this.lost("the view is closed");
    this.#told(this.image.cut("the view is closed"));
  }

  /** Returns the time until the next attempt: longer after each one that failed, and never the same for all. */
  #backoffMs() {
    const longest = Math.min(BACKOFF_MAX_MS, BACKOFF_MIN_MS * 2 ** Math.min(this.#failures++, 16));
    return longest * (0.5 + Math.random() / 2);
  }

  /** Waits so long, or until something ends it. */
  #pause(ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#wake = () => (clearTimeout(timer), resolve());
    });
  }

  /** Follows the topic over one connection. Returns the reason why it ended. */
  async #follow() {
    this.#lost = null;
    this.#heardMs = this.now();
    this.#begin();
    let wasSilent = false;
    while (this.#lost === null) {
      const { beatMs, staleAfterMs } = this.#request;
      await this.#pause(this.image.whole ? beatMs : Math.min(GATHERING_MS, beatMs));
      if (this.#lost !== null) break;
      const now = this.now();
      this.#told(this.image.look(now));
      const silentMs = this.#silentMs(now);
      const isSilent = silentMs > SILENT_TIMES * staleAfterMs;
      if (isSilent && wasSilent) {
        this.#link.close();
        return `the broker has not answered for ${Math.round(silentMs / 1000)} s`;
      }
      wasSilent = isSilent;
      this.#beat(now);
    }
    return this.#lost;
  }

  /** Returns for how long the broker has owed an answer. Browsers let a hidden page ask once a minute only. */
  #silentMs(now) {
    const [oldest = this.#ending === null ? now : this.#askedMs] = this.#asked.values();
    return now - Math.max(this.#heardMs, oldest);
  }

  // -- asking ----------------------------------------------------------------------------------------------------

  #begin() {
    this.#ending = null;
    this.#asked.clear();
    if (this.#life && !this.image.wantsSnapshot) {
      this.image.resume();
      this.#start = ["from", String(this.image.offset)];
    } else {
      this.image.begin();
      this.#start = SNAPSHOT;
    }
    this.#first = this.#ask();
  }

  #ask() {
    this.#askedMs = this.now(); // before it goes out, or an answer could pass for younger than it is
    const number = this.#link.subscribe(this.#request.filter, [...this.#request.pairs, this.#start]);
    if (number !== null) this.#asked.set(number, this.#askedMs);
    return number;
  }

  /** Asks again if the last question was answered, or the lease needs it. */
  #beat(now) {
    if (this.#ending === null && (!this.#asked.size || now - this.#askedMs > this.#request.leaseMs / 3)) this.#ask();
  }

  /** Ends the subscription, for a change is missing, and begins another when that is confirmed. */
  #beginAnew() {
    if (this.#ending !== null) return;
    this.#asked.clear();
    this.#askedMs = this.now();
    this.#ending = this.#link.unsubscribe(this.#request.filter);
  }

  // -- what comes ------------------------------------------------------------------------------------------------

  received(record) {
    this.#heardMs = this.now();
    if (this.#ending !== null) return;
    try {
      this.#told(tell(this.image, record, this.#request.keyOf, this.#request.delta));
    } catch (error) {
      this.#fail(error.message);
      return;
    }
    if (this.image.wantsSnapshot) this.#beginAnew();
  }

  granted(number, refusal, user) {
    const now = (this.#heardMs = this.now());
    const sentMs = this.#asked.get(number);
    if (!this.#asked.delete(number)) return;
    if (refusal) return this.#refuse(refusal);
    let grant;
    try {
      grant = readGrant(user);
    } catch (error) {
      return this.#refuse(error.message);
    }
    if (number === this.#first) {
      if (!this.#begun(grant)) return;
    } else if (!grant.renewed) {
      this.#told(this.image.cut("the lease of its subscription had run out"));
      return this.#beginAnew();
    }
    // The next record tells of a gap that conflation has made.
    if (grant.gap !== null && grant.gap.reason !== "conflated") this.#told(this.image.gap(grant.gap));
    if (this.image.wantsSnapshot) return this.#beginAnew();
    if (grant.sent === null) return;
    this.#failures = 0;
    this.refusal = "";
    this.#told(this.image.proved(grant.sent, sentMs, now));
    if (this.image.whole) this.#life = grant.life;
  }

  /** Takes the answer to the first SUBSCRIBE. Returns whether the subscription goes on. */
  #begun(grant) {
    this.#first = null;
    if (!grant.keyed) {
      const { key, filter } = this.#request;
      this.#refuse(`no [[topic]] with key ${JSON.stringify(key)} covers ${filter}`);
      return false;
    }
    if (this.#start !== SNAPSHOT && grant.life !== this.#life) {
      this.#life = "";
      this.#beginAnew();
      return false;
    }
    this.image.granted(grant.last);
    return true;
  }

  ended(number) {
    this.#heardMs = this.now();
    if (number === this.#ending) this.#begin();
  }

  lost(why) {
    this.#lost ??= why;
    this.#wake();
  }

  #refuse(why) {
    this.refusal = why;
    this.#fail(why);
  }

  #fail(why) {
    this.#link.close();
    this.lost(why);
  }
}
