/**
 * Events: what a record that came over MQTT 5 means for an image. The broker's user properties are read only here.
 *
 * A publisher may use the same names. The broker's `offset` is the last one of that name, and a gap comes behind it.
 */

import { Entry } from "./entries.js";

/**
 * Tells the image of a record; returns the changes. `deltas`: the view has asked for them. Throws Error if the record
 * lacks what the broker promised.
 */
export function tell(image, record, keyOf, deltas = false) {
  const { topic, payload, user } = record;
  const at = user.findLastIndex(([name]) => name === "offset");
  if (at < 0) throw new Error(`a record of ${topic} has no offset`);
  const publishers = user.slice(0, at);
  const offset = whole(user[at][1]);
  const gap = readGap(new Map(user.slice(at + 1)));
  const changes = gap === null ? [] : image.gap(gap);
  const said = new Map(publishers);
  const event = said.get("headway-event");
  if (deltas && event === "delta") {
    const left = publishers.filter(([name]) => name !== "headway-event" && name !== "headway-key");
    const delta = new Entry(topic, said.get("headway-key"), payload, offset, left, record.contentType);
    return [...changes, ...image.patch(delta)];
  }
  if (event !== "delete" && event !== "out_of_focus") {
    const key = keyOf(topic, payload, publishers);
    return [...changes, ...image.put(new Entry(topic, key, payload, offset, publishers, record.contentType))];
  }
  const key = said.get("headway-key") || keyOf(topic, payload, publishers);
  if (event === "delete") return [...changes, ...image.delete(topic, key, offset)];
  return [...changes, ...image.outOfFocus(topic, key, offset, said.get("headway-why") ?? "")];
}

/** Returns the gap that user properties tell of; null if they tell of none. */
function readGap(said) {
  if (!said.has("gap-records")) return null;
  const [records, last] = [whole(said.get("gap-records")), whole(said.get("gap-last") ?? "0")];
  return { records, reason: said.get("gap-reason") ?? "", last };
}

/** Reads the user properties of a SUBACK: docs/CLIENT.md has them. Throws Error. */
export function readGrant(user) {
  const said = new Map(user);
  if (!said.has("last-offset")) throw new Error("the broker does not say in SUBACK what it has sent: is it a Headway?");
  const last = whole(said.get("last-offset"));
  const sent = said.has("sent-offset")
    ? { offset: whole(said.get("sent-offset")), ageMs: Number(said.get("age-s")) * 1000, last }
    : null;
  return {
    renewed: said.get("renewed") === "true", keyed: said.get("keyed") === "true", last, sent, gap: readGap(said),
    life: said.get("life") ?? "",
  };
}

function whole(text) {
  const value = Number(text);
  if (!Number.isSafeInteger(value)) throw new Error(`${JSON.stringify(text)} is not a number of the broker`);
  return value;
}
