import assert from "node:assert/strict";
import { test } from "node:test";
import { makeRequest } from "../../../src/headway/client/javascript/request.js";

class WebSocket {}
const request = (url, options = {}) => makeRequest(url, "flights/#", { WebSocket, ...options });

for (const [url, address, user, password] of [
  ["ws://h", "ws://h/mqtt", null, null],
  ["ws://127.0.0.1:8083", "ws://127.0.0.1:8083/mqtt", null, null],
  ["wss://h/mqtt/live?x=1", "wss://h/mqtt/live?x=1", null, null],
  ["ws://ann:p%40ss@h:1", "ws://h:1/mqtt", "ann", "p@ss"],
  ["ws://ann@h", "ws://h/mqtt", "ann", null],
  ["wss://:a.b.c@h", "wss://h/mqtt", "token", "a.b.c"],
  ["ws://[::1]:8083", "ws://[::1]:8083/mqtt", null, null],
]) {
  test(`${url} is taken apart`, () => {
    const made = request(url);
    assert.deepEqual([made.url, made.user, made.password], [address, user, password]);
  });
}

for (const url of ["mqtt://h:1883", "http://h", "h:8083", "", "ws://", "ws://h/#x", "ws://ann:secret@h:port"]) {
  test(`${JSON.stringify(url)} is refused, without its login`, () => {
    assert.throws(() => request(url), (error) => error instanceof TypeError && !error.message.includes("secret"));
  });
}

test("what is asked for goes into the options of the subscription", () => {
  const { pairs, beatMs, leaseMs, staleAfterMs, clientId } = request("ws://h", { key: "/a", selector: "x > 1", policy: "p" });
  assert.deepEqual(pairs, [
    ["offsets", "true"], ["expiries", "true"], ["key", "/a"], ["lease", "30s"], ["out_of_focus", "true"],
    ["selector", "x > 1"], ["policy", "p"],
  ]);
  assert.deepEqual([beatMs, leaseMs, staleAfterMs], [1250, 30_000, 5000]);
  assert.match(clientId, /^view-[0-9a-f]{12}$/);
  assert.equal(request("ws://h", { lease: "1_000h", staleAfter: "20m" }).beatMs, 30_000);
  assert.equal(request("ws://h", { lease: "1.5s", staleAfter: "900ms" }).beatMs, 225);
});

for (const [options, words] of [
  [{ stale_after: "1s" }, /there is no option stale_after; there are: key, selector/],
  [{ lease: "5s" }, /staleAfter "5s" has to be less than lease "5s"/],
  [{ lease: 30 }, /lease 30 is not a duration/],
  [{ lease: "30" }, /lease "30" is not a duration/],
  [{ lease: "30 parsecs" }, /is not a duration/],
  [{ staleAfter: "0s" }, /has to be more than nothing/],
  [{ conflate: "5s" }, /conflate "5s" has to be less than staleAfter "5s"/],
  [{ delta: "true" }, /delta "true" is neither true nor false/],
  [{ key: "tailnum" }, /none of: a JSON pointer/],
  [{ WebSocket: undefined }, globalThis.WebSocket ? null : /there is no WebSocket here/],
]) {
  test(`${JSON.stringify(options)} is refused`, () => {
    if (words) assert.throws(() => request("ws://h", options), { name: "TypeError", message: words });
  });
}

test("conflation may be as often as the network has room", () => {
  assert.deepEqual(request("ws://h", { conflate: "0s" }).pairs.at(-1), ["conflate", "0s"]);
  assert.throws(() => makeRequest("ws://h", "", { WebSocket }), TypeError);
});
