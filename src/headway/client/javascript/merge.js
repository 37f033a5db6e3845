/**
 * JSON merge patches (RFC 7396): a patch has the members that change; null takes a member away.
 *
 * Members that a patch does not name keep their text, as with the Python client: JavaScript would change numbers beyond
 * 2^53, and how they are written.
 */

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const encoder = new TextEncoder();
const SPACE = /[ \t\n\r]*/y, STRING = /"(?:[^"\\]|\\.)*"/y, PLAIN = /[^,\]} \t\n\r]+/y, INNER = /[^"[\]{}]*/y;

/** Returns the bytes of a JSON object with a patch merged onto it; null if one of them is no JSON object. */
export function merged(base, patch) {
  try {
    const [known, changes] = [membersOf(decoder.decode(base)), membersOf(decoder.decode(patch))];
    return known === null || changes === null ? null : encoder.encode(written(merge(known, changes)));
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof TypeError) return null; // no JSON, or no UTF-8
    throw error;
  }
}

function merge(known, changes) {
  for (const [name, text] of changes) {
    if (text === "null") known.delete(name);
    else if (text[0] === "{") known.set(name, written(merge(inner(known.get(name)), members(text))));
    else known.set(name, text);
  }
  return known;
}

function inner(text) {
  return text?.[0] === "{" ? members(text) : new Map();
}

function written(map) {
  return `{${[...map].map(([name, text]) => `${JSON.stringify(name)}:${text}`).join(",")}}`;
}

/** Returns the members of a JSON object, each as its text; null for other JSON. Throws SyntaxError for what is none. */
function membersOf(text) {
  const value = JSON.parse(text);
  return value !== null && typeof value === "object" && !Array.isArray(value) ? members(text) : null;
}

/** Returns the members of an object that is known to be JSON. */
function members(text) {
  const found = new Map();
  let at = text.indexOf("{") + 1;
  const take = (pattern) => {
    pattern.lastIndex = at;
    const [piece] = pattern.exec(text);
    at += piece.length;
    return piece;
  };
  const value = () => {
    if (text[at] === '"') return take(STRING);
    if (text[at] !== "{" && text[at] !== "[") return take(PLAIN);
    const start = at;
    let depth = 0;
    do {
      take(INNER);
      if (text[at] === '"') take(STRING);
      else depth += "{[".includes(text[at++]) ? 1 : -1;
    } while (depth);
    return text.slice(start, at);
  };
  for (take(SPACE); text[at] !== "}"; take(SPACE)) {
    if (text[at] === ",") at++;
    take(SPACE);
    const name = JSON.parse(take(STRING));
    take(SPACE);
    at++; // the colon
    take(SPACE);
    found.set(name, value());
  }
  return found;
}
