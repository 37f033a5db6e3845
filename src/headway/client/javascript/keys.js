/**
 * Keys of records, as the broker finds them: `topic`, `property:NAME`, or a JSON pointer into the payload.
 *
 * Keys are texts: 7 and 7.0 are both "7", and so is "7"; true is "true". A record may have none: null. A record without
 * payload has the key that its user property `key` says, if the key is a pointer.
 */

const CHARS_MAX = 1024;
const DEPTH_MAX = 16;
const INDEX = /^(0|[1-9][0-9]{0,8})$/;
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Returns a function from (topic, payload, user properties) to the key. Throws TypeError if the key is malformed. */
export function compileKey(expression) {
  if (expression === "topic") return (topic) => keyText(topic);
  if (expression.startsWith("property:")) {
    const name = expression.slice("property:".length);
    if (!name) throw new TypeError("key 'property:' lacks the name of the user property");
    return (_topic, _payload, user) => keyText(valueOf(user, name));
  }
  const way = pointer(expression);
  return (_topic, payload, user) => {
    if (!payload.length) return keyText(valueOf(user, "key"));
    let value;
    try {
      value = JSON.parse(decoder.decode(payload));
    } catch {
      return null;
    }
    return keyText(resolve(value, way));
  };
}

function pointer(expression) {
  const shown = JSON.stringify(expression.slice(0, 60));
  if (!expression.startsWith("/")) {
    throw new TypeError(`key ${shown} is none of: a JSON pointer such as /tailnum, topic, property:NAME`);
  }
  if (length(expression) > CHARS_MAX || expression.split("/").length - 1 > DEPTH_MAX) {
    throw new TypeError(`key ${shown}...: ${CHARS_MAX} characters and ${DEPTH_MAX} levels are allowed`);
  }
  if (/~(?![01])/.test(expression)) {
    throw new TypeError(`key ${shown}: in a JSON pointer '~' is written ~0 and '/' within a name ~1`);
  }
  return expression.slice(1).split("/").map((token) => token.replaceAll("~1", "/").replaceAll("~0", "~"));
}

function resolve(value, way) {
  for (const token of way) {
    if (Array.isArray(value)) value = INDEX.test(token) ? value[Number(token)] : undefined;
    else if (value !== null && typeof value === "object") value = Object.hasOwn(value, token) ? value[token] : undefined;
    else return undefined;
  }
  return value;
}

function valueOf(user, name) {
  return user.find(([one]) => one === name)?.[1];
}

/** Returns a value as the text of a key; null for objects, arrays, null and values that are too long. */
export function keyText(value) {
  let text;
  if (typeof value === "string") text = value;
  else if (typeof value === "boolean") text = String(value);
  else if (typeof value === "number") text = numberText(value);
  else return null;
  return length(text) <= CHARS_MAX ? text : null;
}

/** JavaScript reads 9007199254740993 as 9007199254740992, so two such keys could become one. */
function numberText(value) {
  if (Math.abs(value) >= 2 ** 53) {
    throw new RangeError(`a key is ${value}, and JavaScript reads no numbers of 2^53 or more: publish it as a text`);
  }
  if (Number.isInteger(value) || Math.abs(value) >= 1e-4) return String(value);
  const [digits, exponent] = value.toExponential().split("e-");
  return `${digits}e-${exponent.padStart(2, "0")}`;
}

function length(text) {
  return text.length <= CHARS_MAX ? text.length : [...text].length;
}
