/** The request of a view: which records it wants, on what terms. */

import { compileKey } from "./keys.js";

const UNITS_MS = { us: 0.001, ms: 1, s: 1000, m: 60_000, min: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };
const NUMBER = /^(\d+(?:_\d+)*(?:\.\d+)?|\.\d+)\s*([a-z]+)$/;
/** How often a view asks the broker, within the time after which it counts as stale, whether it is current. */
const BEATS = 4;
/** A view says something at least so often, so the connection is kept alive. */
const BEAT_MAX_MS = 30_000;
/** The user that goes with a token, as in the Python client. */
const TOKEN_USER = "token";
const OPTIONS = ["key", "selector", "conflate", "policy", "delta", "lease", "staleAfter", "clientId", "WebSocket"];

/** Returns the terms of a view, checked. Throws TypeError, which says what is wrong with which option. */
export function makeRequest(url, filter, options = {}) {
  const unknown = Object.keys(options).find((name) => !OPTIONS.includes(name));
  if (unknown !== undefined) throw new TypeError(`there is no option ${unknown}; there are: ${OPTIONS.join(", ")}`);
  const { key = "topic", selector, conflate, policy, delta = false, lease = "30s", staleAfter = "5s" } = options;
  checkFilter(filter);
  if (typeof delta !== "boolean") throw new TypeError(`delta ${JSON.stringify(delta)} is neither true nor false`);
  const [leaseMs, staleAfterMs] = [duration("lease", lease), duration("staleAfter", staleAfter)];
  if (staleAfterMs >= leaseMs) throw new TypeError(`staleAfter "${staleAfter}" has to be less than lease "${lease}"`);
  if (conflate !== undefined && conflate !== "off" && duration("conflate", conflate, 0) >= staleAfterMs) {
    throw new TypeError(`conflate "${conflate}" has to be less than staleAfter "${staleAfter}"`);
  }
  const { clientId = `view-${randomName()}`, WebSocket = globalThis.WebSocket } = options;
  if (WebSocket === undefined) throw new TypeError("there is no WebSocket here: pass the class as an option");
  const pairs = [["offsets", "true"], ["expiries", "true"], ["key", key], ["lease", lease]];
  if (selector !== undefined) pairs.push(["out_of_focus", "true"], ["selector", selector]);
  if (conflate !== undefined) pairs.push(["conflate", conflate]);
  if (delta) pairs.push(["delta", "true"]);
  if (policy !== undefined) pairs.push(["policy", policy]);
  return {
    ...readAddress(url), filter, keyOf: compileKey(key), key, pairs, delta, leaseMs, staleAfterMs,
    clientId, WebSocket, beatMs: Math.min(staleAfterMs / BEATS, leaseMs / 3, BEAT_MAX_MS),
  };
}

/** Takes the login out of the address: `ws://alice:secret@host:8083`, or `:TOKEN@`. The path is /mqtt if there is none. */
function readAddress(text) {
  let url;
  try {
    url = new URL(text);
  } catch {
    url = null;
  }
  if (url === null || !["ws:", "wss:"].includes(url.protocol) || !url.hostname || url.hash) {
    const shown = JSON.stringify(String(text).split("@").at(-1));
    throw new TypeError(`${shown} is not the address of a WebSocket, such as ws://127.0.0.1:8083`);
  }
  const [user, password] = [decodeURIComponent(url.username), decodeURIComponent(url.password)];
  url.username = url.password = "";
  if (url.pathname === "/") url.pathname = "/mqtt";
  const logsIn = user !== "" || password !== "";
  return { url: url.href, user: logsIn ? user || TOKEN_USER : null, password: password || null };
}

function checkFilter(filter) {
  if (typeof filter !== "string" || !filter) throw new TypeError("the filter of a view is a text, such as flights/#");
}

/** Returns the milliseconds of a duration as in a config file: 500ms, 1.5s, 20m. */
function duration(name, text, least = Number.MIN_VALUE) {
  const found = typeof text === "string" ? NUMBER.exec(text.trim()) : null;
  const unit = found === null ? undefined : UNITS_MS[found[2]];
  if (unit === undefined) throw new TypeError(`${name} ${JSON.stringify(text)} is not a duration such as 500ms, 30s, 20m`);
  const ms = Number(found[1].replaceAll("_", "")) * unit;
  if (ms < least) throw new TypeError(`${name} "${text}" has to be more than nothing`);
  return ms;
}

function randomName() {
  const bytes = crypto.getRandomValues(new Uint8Array(6));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
