/** Requests to the broker that the page comes from. */

import { request } from "./login.js";

/** Returns the answer, decoded. Throws Error with the broker's own words. */
export async function ask(path, options = {}) {
  const answer = await request(path, options);
  const text = await answer.text();
  if (answer.ok) return text ? JSON.parse(text) : null;
  let said = null;
  try {
    said = JSON.parse(text).error;
  } catch {
    // not the broker's own words
  }
  throw new Error(said ?? `the broker answered with ${answer.status}`);
}

/** Asks for something to be done. */
export function send(path, body, method = "POST") {
  return ask(path, { method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

/** Returns the lines of an answer of one JSON object a line. */
export async function lines(path) {
  const answer = await request(path);
  const text = await answer.text();
  if (!answer.ok) throw new Error(JSON.parse(text).error);
  return text.split("\n").filter(Boolean).map((line) => JSON.parse(line));
}
