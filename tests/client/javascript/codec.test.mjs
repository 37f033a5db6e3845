import assert from "node:assert/strict";
import { test } from "node:test";
import * as codec from "../../../src/headway/client/javascript/codec.js";

const hex = (bytes) => Buffer.from(bytes).toString("hex");
const bytes = (text) => Uint8Array.from(Buffer.from(text.replaceAll(" ", ""), "hex"));
const text = (value) => value.length.toString(16).padStart(4, "0") + hex(Buffer.from(value));
const PAIR = `26${text("a")}${text("b")}`;

test("packets are written as MQTT 5 has them", () => {
  assert.equal(hex(codec.connect("me", null, null)), `100f${text("MQTT")}0502003c00${text("me")}`);
  assert.equal(hex(codec.connect("me", "u", "p")), `1015${text("MQTT")}05c2003c00${text("me")}${text("u")}${text("p")}`);
  assert.equal(hex(codec.subscribe(258, "a/#", [["a", "b"]])), `8210010207${PAIR}${text("a/#")}20`);
  assert.equal(hex(codec.unsubscribe(1, "a/#")), `a208000100${text("a/#")}`);
  assert.equal(hex(codec.disconnect()), "e000");
  assert.equal(codec.subscribe(1, "a".repeat(200), []).length, 3 + 2 + 1 + 202 + 1);
  assert.throws(() => codec.subscribe(1, "é".repeat(40000), []), RangeError);
});

/** Writes a packet, or properties, with its length in front. */
const sized = (...parts) => {
  const all = parts.join("").replaceAll(" ", "");
  return (all.length / 2).toString(16).padStart(2, "0") + all;
};
const packet = (first, ...parts) => first + sized(...parts);
const nothing = { user: [], reason: "", contentType: null };
const EVERY = ["0101", "02 00000001", `08${text("r")}`, "09 0002 abcd", "0b ff01", "0b 01", "23 0001", "24 00"];

const READ = [
  ["a connack", packet("20", "00 00", sized()), { type: 2, code: 0, ...nothing }],
  ["a refusal", packet("20", "00 97", sized(`1f${text("no")}`, "21 0001")), { type: 2, code: 0x97, ...nothing, reason: "no" }],
  ["a record", packet("30", text("t"), sized(PAIR, `03${text("c")}`), "7b7d"),
    { type: 3, topic: "t", user: [["a", "b"]], reason: "", contentType: "c", payload: bytes("7b7d") }],
  ["a record with every kind of property", packet("31", text("t"), sized(...EVERY)),
    { type: 3, topic: "t", ...nothing, payload: bytes("") }],
  ["a suback", packet("90", "0001", sized(PAIR), "00 80"),
    { type: 9, number: 1, ...nothing, user: [["a", "b"]], codes: [0, 128] }],
  ["an unsuback", packet("b0", "0107", sized(), "11"), { type: 11, number: 263, ...nothing, codes: [17] }],
  ["a pingresp", "d000", { type: 13 }],
  ["a disconnect", "e000", { type: 14, code: 0, ...nothing }],
  ["a disconnect with a code", "e0018b", { type: 14, code: 0x8b, ...nothing }],
];

for (const [name, written, expected] of READ) {
  test(`${name} is read, in one piece and byte by byte`, () => {
    const all = bytes(written);
    assert.deepEqual([...new codec.Decoder().feed(all)], [expected]);
    const decoder = new codec.Decoder();
    const pieces = [...all, ...all].flatMap((byte) => [...decoder.feed(Uint8Array.of(byte))]);
    assert.deepEqual(pieces, [expected, expected]);
  });
}

test("a long packet is read from pieces that are not aligned with it", () => {
  const payload = Buffer.alloc(100_000, "x");
  const size = 3 + 1 + payload.length;
  const head = Uint8Array.of(0x30, (size & 127) | 128, ((size >> 7) & 127) | 128, size >> 14, 0, 1, 0x74, 0);
  const all = Uint8Array.from([...head, ...payload, ...head, ...payload]);
  const decoder = new codec.Decoder();
  const got = [];
  for (let at = 0; at < all.length; at += 16384) got.push(...decoder.feed(all.subarray(at, at + 16384)));
  assert.deepEqual(got.map((one) => one.payload.length), [100_000, 100_000]);
});

for (const [name, written] of [
  ["a length of five bytes", "30 ff ff ff ff 01"],
  ["a record at QoS 1", "32 06 0001 74 0001 00"],
  ["a topic that ends too early", "30 04 0009 74 00"],
  ["a topic that is not UTF-8", "30 04 0001 ff 00"],
  ["properties beyond the end", "30 05 0001 74 09 26"],
  ["a property that is not known", "30 06 0001 74 02 7f 00"],
  ["a property beyond the properties", "30 07 0001 74 02 02 0000"],
  ["a packet that only clients send", "c0 00"],
]) {
  test(`${name} is an error`, () => {
    assert.throws(() => [...new codec.Decoder().feed(bytes(written))], codec.CodecError);
  });
}
