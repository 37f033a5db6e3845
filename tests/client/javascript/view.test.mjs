// The view with a broker that is made up, and does what a real one does seldom.
import assert from "node:assert/strict";
import { test } from "node:test";
import { View, ViewError } from "../../../src/headway/client/javascript/headway-view.js";

const utf8 = new TextEncoder(), latin = new TextDecoder("latin1");
const u16 = (value) => [value >> 8, value & 255];
const text = (value) => [...u16(utf8.encode(value).length), ...utf8.encode(value)];
const varint = (value) => (value < 128 ? [value] : [(value & 127) | 128, ...varint(value >> 7)]);
const sized = (bytes) => [...varint(bytes.length), ...bytes];
const said = (user) => sized(Object.entries(user).flatMap(([name, value]) => [0x26, ...text(name), ...text(String(value))]));
const packet = (first, ...body) => Uint8Array.from([first, ...sized(body.flat())]);

/** A broker with one client, which does what it is told to. `asked` has the packets of the client. */
class Broker {
  sockets = [];
  asked = [];
  /** What it says in CONNACK: a code, and user properties. */
  greeting = [0, {}];
  grants = { renewed: "true", keyed: "true", "last-offset": 5, life: "one", "sent-offset": 5, "age-s": "0.000" };
  answers = true;
  /** For so long the page is stopped when it has just asked something. */
  stopsMs = 0;
  /** Answers to SUBSCRIBE that are not sent yet, as it is told not to answer. */
  held = [];

  /** The class that a view takes for WebSocket. */
  get WebSocket() {
    const broker = this;
    return class {
      readyState = 0;
      constructor() {
        broker.sockets.push(this);
        queueMicrotask(() => {
          this.readyState = 1;
          this.onopen();
        });
      }
      send(bytes) {
        queueMicrotask(() => broker.answer(this, bytes));
        for (const end = performance.now() + broker.stopsMs; performance.now() < end; );
      }
      close() {
        this.readyState = 3;
        queueMicrotask(() => this.onclose({ reason: "" }));
      }
    };
  }

  answer(socket, bytes) {
    const type = bytes[0] >> 4;
    this.asked.push({ type, text: latin.decode(bytes) });
    if (type === 1) this.send(packet(0x20, [0, this.greeting[0]], said(this.greeting[1])));
    if (type === 8) {
      const first = this.asked.filter((one) => one.type === 8).length === 1;
      const number = [bytes[bytes[1] > 127 ? 3 : 2], bytes[bytes[1] > 127 ? 4 : 3]];
      const granted = () => this.send(packet(0x90, number, said(this.grants), [0]));
      if (this.answers) granted(), this.onGranted?.();
      else this.held.push(granted);
      if (first) this.opened?.();
    }
    if (type === 10) this.send(packet(0xb0, [bytes[2], bytes[3]], [0], [0]));
  }

  send(bytes) {
    this.sockets.at(-1).onmessage({ data: bytes.buffer });
  }

  publish(key, offset, user = {}, payload = JSON.stringify({ key, offset })) {
    this.send(packet(0x30, text("flights/x"), said({ ...user, offset }), [...utf8.encode(payload)]));
  }

  /** Whether the last SUBSCRIBE asks for this. */
  asksFor(words) {
    return this.asked.findLast((one) => one.type === 8).text.includes(words);
  }
}

async function until(condition) {
  const deadline = Date.now() + 10_000;
  while (!condition()) {
    if (Date.now() > deadline) throw new Error(`it still does not hold: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

const open = (broker, options = {}) =>
  View.open("ws://h", "flights/#", { key: "/key", staleAfter: "200ms", WebSocket: broker.WebSocket, ...options });

test("a view is read as a Map is", async () => {
  const broker = new Broker();
  const view = await open(broker);
  broker.publish("a", 6);
  broker.publish("b", 7);
  assert.deepEqual([...view.keys()], ["a", "b"]);
  assert.deepEqual([...view].map(([key, entry]) => [key, entry.offset]), [["a", 6], ["b", 7]]);
  assert.deepEqual([...new Map(view).keys()], ["a", "b"]);
  assert.deepEqual([view.size, view.has("a"), view.has("c"), view.get("c")], [2, true, false, undefined]);
  assert.deepEqual([view.get("b").json(), view.get("b", "flights/x").topic], [{ key: "b", offset: 7 }, "flights/x"]);
  const seen = [];
  view.forEach((entry, key, whole) => seen.push([entry.key, key, whole === view]));
  assert.deepEqual(seen, [["a", "a", true], ["b", "b", true]]);
  for (const key of view.keys()) broker.publish(key, 8 + seen.length, { "headway-event": "delete", "headway-key": key }, "");
  assert.equal(view.size, 1); // of two deletes with one offset the second is a repetition
  view.close();
  assert.deepEqual([view.size, view.current, view.whyStale], [1, false, "the view is closed"]);
  await until(() => broker.asked.at(-1).type === 14);
});

test("changes end with the view, and so does what waits for them", async () => {
  const view = await open(new Broker());
  const changes = view.changes();
  assert.equal((await changes.next()).value.type, "current");
  const last = changes.some();
  view.close();
  assert.deepEqual(await last, [{ type: "stale", why: "the view is closed" }]);
  assert.deepEqual(await changes.some(), []);
  assert.deepEqual((await view.changes().some()).map((one) => one.type), ["stale"]);
});

test("after a gap it takes a new snapshot, and keeps the old image until then", async () => {
  const broker = new Broker();
  const view = await open(broker);
  broker.publish("a", 6);
  broker.publish("b", 9, {}, "{}");
  broker.grants = { ...broker.grants, "last-offset": 9, "sent-offset": 9 };
  broker.send(packet(0x30, text("flights/x"), said({ offset: 10, "gap-records": 3, "gap-reason": "discarded", "gap-last": 9 }),
    [...utf8.encode('{"key": "c"}')]));
  assert.deepEqual([view.current, view.size, view.whyStale], [false, 2, "records are missing (discarded)"]);
  await until(() => view.current);
  assert.ok(broker.asksFor("snapshot"));
  assert.equal(view.size, 0);
  view.close();
});

test("a lease that ran out is found, and the image is taken up where it was", async () => {
  const broker = new Broker();
  const view = await open(broker);
  broker.publish("a", 6);
  const told = [];
  (async () => {
    for await (const change of view.changes()) told.push(change);
  })();
  broker.grants = { ...broker.grants, renewed: "false", "last-offset": 6, "sent-offset": 6 };
  await until(() => told.some((one) => one.type === "stale"));
  assert.equal(told.find((one) => one.type === "stale").why, "the lease of its subscription had run out");
  broker.grants = { ...broker.grants, renewed: "true" };
  await until(() => view.current);
  assert.ok(broker.asksFor("from"));
  assert.deepEqual([...view.keys()], ["a"]);
  view.close();
});

test("in another life of the broker its offsets count no more", async () => {
  const broker = new Broker();
  const view = await open(broker);
  broker.publish("a", 6);
  broker.grants = { ...broker.grants, life: "two", "last-offset": 2, "sent-offset": 2 };
  broker.sockets.at(-1).close();
  await until(() => view.current && view.size === 0);
  assert.ok(broker.asked.some((one) => one.text.includes("from")));
  assert.ok(broker.asksFor("snapshot"));
  assert.equal(view.asOf.offset, 2);
  view.close();
});

test("a broker that says nothing any more is given up, and the age says for how long", async () => {
  const broker = new Broker();
  const view = await open(broker);
  broker.answers = false;
  await until(() => broker.sockets.length > 1);
  assert.ok(view.staleMs > 600);
  assert.ok(Date.now() - view.asOf.time > 600);
  view.close();
});

test("a page that is stopped behind its question takes the answer for no younger", async () => {
  const broker = new Broker(), ages = [];
  const view = await open(broker);
  broker.stopsMs = 50;
  broker.onGranted = () => ages.push(view.staleMs);
  await until(() => ages.length > 1);
  view.close();
  assert.ok(ages[1] >= 50, "the broker may have answered at once, and published more meanwhile");
});

test("a page that stood still itself reads what has come before it gives the connection up", async () => {
  const broker = new Broker();
  const view = await open(broker);
  broker.answers = false;
  await until(() => broker.held.length);
  for (const end = performance.now() + 700; performance.now() < end; ); // longer than it waits for an answer
  await new Promise((resolve) => setImmediate(resolve)); // from now on the loop knows what time it is
  await new Promise((resolve) => setTimeout(resolve, 1)); // the view's timer was due before, and comes first
  broker.answers = true;
  for (const answer of broker.held) answer();
  await until(() => view.current);
  assert.equal(broker.sockets.length, 1);
  view.close();
});

test("it does not come back before the time for which it was shut out", async () => {
  const broker = new Broker();
  const view = await open(broker);
  broker.greeting = [0x97, { "retry-after-s": 3600 }];
  broker.sockets.at(-1).close();
  await until(() => broker.sockets.length === 2 && view.whyStale.startsWith("refused"));
  assert.equal(view.whyStale, "refused: the broker says code 0x97");
  await until(() => broker.sockets[1].readyState === 3);
  assert.equal(broker.sockets.length, 2);
  view.close();
});

test("a delta is merged into the latest record, and one of a key that is not there wants a new snapshot", async () => {
  const broker = new Broker();
  const view = await open(broker, { delta: true });
  const delta = { "headway-event": "delta", "headway-key": "a" };
  assert.ok(broker.asksFor("delta"));
  broker.publish("a", 6, {}, '{"key":"a","n":9007199254740993,"m":1}');
  broker.publish("a", 7, { p: "1", ...delta }, '{"key":"a","m":null}');
  assert.equal(view.get("a").text(), '{"key":"a","n":9007199254740993}');
  assert.deepEqual([view.get("a").offset, view.get("a").properties], [7, [["p", "1"]]]);
  broker.publish("b", 8, { ...delta, "headway-key": "b" }, "{}");
  assert.equal(view.whyStale, "a delta came that nothing is known to merge with");
  await until(() => broker.asked.some((one) => one.type === 10) && broker.asksFor("snapshot"));
  view.close();
});

test("who has not asked for deltas takes none from a publisher", async () => {
  const broker = new Broker();
  const view = await open(broker);
  broker.publish("a", 6, { "headway-event": "delta" });
  assert.deepEqual(view.get("a").json(), { key: "a", offset: 6 });
  view.close();
});

for (const [name, change, words] of [
  ["a refusal", { greeting: [0x86, {}] }, /refused: the broker says code 0x86/],
  ["no keyed topic", { grants: { ...new Broker().grants, keyed: "false" } }, /no \[\[topic\]\] with key "\/key" covers flights\/#/],
  ["another broker", { grants: {} }, /is it a Headway\?/],
]) {
  test(`${name} is an error when it is opened`, async () => {
    await assert.rejects(open(Object.assign(new Broker(), change)), (error) => {
      return error instanceof ViewError && error.name === "ViewError" && words.test(error.message);
    });
  });
}
