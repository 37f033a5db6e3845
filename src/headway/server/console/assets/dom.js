/** Elements. Text goes in as text only, never as markup, so no client's name can become a part of the page. */

const SVG = "http://www.w3.org/2000/svg";
/** Directions and invisible marks in names would rearrange the text around them. */
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/**
 * Returns an element: `h("td", { class: "number", title: "…" }, "12", h("b", {}, "x"))`. Properties that begin with `on`
 * are listeners; `style` is a mapping; null and false leave a property out.
 */
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** Returns an SVG element, likewise. */
export function s(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") place(element, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function place(element, style) {
  for (const [name, value] of Object.entries(style)) element.style.setProperty(name, value);
}

/** Sets an element's text, if it is another one. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function mark(element, name, value) {
  if (value === null || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** Returns a name as it may be shown: marks that nobody sees are shown as `␣` or a dot. */
export function shown(name) {
  return name.replace(INVISIBLE, (char) => (char === "\t" || char === "\n" ? "␣" : "·"));
}

/** A name that a client has chosen: isolated, so that its direction is its own. */
export function named(name, properties = {}) {
  return h("bdi", { ...properties, title: shown(name) }, shown(name));
}

/**
 * Makes a parent's children those of the items, in their order: those that stay are updated where they are, so that
 * the focus, a selection, and what a screen reader is at stay as well.
 */
export function keyed(parent, items, keyOf, create, update) {
  const before = (parent.keyedChildren ??= new Map());
  const after = new Map();
  let last = null;
  for (const item of items) {
    const key = keyOf(item);
    if (after.has(key)) continue;
    const child = before.get(key) ?? create(item);
    before.delete(key);
    after.set(key, child);
    update(child, item);
    const next = last === null ? parent.firstChild : last.nextSibling;
    if (next !== child) parent.insertBefore(child, next);
    last = child;
  }
  for (const child of before.values()) child.remove();
  parent.keyedChildren = after;
}
