/**
 * Who looks: a login that this tab keeps, and a form for it where the broker asks. It goes along with each request as a
 * header. It is never in an address, and never in what outlives the tab.
 */

import { h, say } from "./dom.js";

const KEPT = "headway-login";
/** The broker may be below any path of its host, behind a proxy. */
const BROKER = new URL("..", import.meta.url);
const WAITING_MS = 1500;
const FIRST = "The broker has users. Sign in to see it.";
const OVER = "The broker no longer accepts this login. Sign in again.";

let login = sessionStorage.getItem(KEPT) ?? "";
let asking = false;
const listeners = new Set();

/** Has the listener called after each login. */
export function onLogin(listener) {
  listeners.add(listener);
}

/** Returns whether this tab keeps a login. */
export function hasLogin() {
  return login !== "";
}

/** Forgets the login, and whatever the page has shown. */
export function signOut() {
  sessionStorage.removeItem(KEPT);
  login = "";
  location.reload();
}

/** Makes a request with the login. Throws Error where the broker asks who looks; the form is there then. */
export async function request(path, options = {}) {
  if (asking) throw new Error("not signed in");
  const sent = login;
  const answer = await withLogin(path, options, sent);
  if (answer.status !== 401) return answer;
  if (sent === login && !asking) ask(sent ? OVER : FIRST);
  throw new Error("not signed in");
}

function withLogin(path, options, of) {
  // The broker asks by a challenge that no browser has a window for, as a page makes this request.
  const headers = { ...options.headers, "X-Requested-With": "headway-console", ...(of && { Authorization: of }) };
  return fetch(new URL(`.${path}`, BROKER), { cache: "no-store", ...options, headers });
}

function ask(why) {
  asking = true;
  sessionStorage.removeItem(KEPT);
  login = "";
  document.body.classList.add("asking");
  const field = (id, properties) => h("input", { id, name: id, spellcheck: "false", autocapitalize: "none", ...properties });
  const user = field("user", { autocomplete: "username" });
  const password = field("password", { type: "password", autocomplete: "current-password" });
  const token = field("token", { type: "password", autocomplete: "off" });
  const said = h("p", { id: "login-said", role: "alert" }, "");
  const button = h("button", { type: "submit" }, "Sign in");
  const form = h("form", { id: "login", "aria-labelledby": "login-title", onsubmit: async (event) => {
    event.preventDefault();
    button.disabled = true;
    say(said, "");
    const waits = setTimeout(() => say(said, "The broker is still checking. It makes an address wait from which logins have failed."), WAITING_MS);
    const refused = await tried(user.value, password.value, token.value.trim());
    clearTimeout(waits);
    button.disabled = false;
    if (refused === "") return enter(form);
    say(said, refused);
    password.value = "";
    (token.value ? token : user.value ? password : user).focus();
  } },
  h("h1", { id: "login-title" }, "Sign in"), h("p", {}, why),
  h("label", { for: "user" }, "User"), user, h("label", { for: "password" }, "Password"), password,
  h("details", {}, h("summary", {}, "or with a token"), h("label", { for: "token" }, "Bearer token"), token),
  said, h("p", { class: "buttons" }, button), h("p", { class: "note" }, "This tab keeps the login until it is closed, or you sign out."));
  document.getElementById("main").before(form);
  user.focus();
}

/** Tries a login, and keeps it if it is good. Returns why it is not, or an empty text. */
async function tried(user, password, token) {
  if (!user && !token) return "Give a user and a password, or a token.";
  if (!token && user.includes(":")) return "A user's name has no colon here: HTTP basic cannot say it. Use a token.";
  const of = token ? `Bearer ${token}` : `Basic ${btoa(String.fromCharCode(...new TextEncoder().encode(`${user}:${password}`)))}`;
  let answer;
  try {
    answer = await withLogin("/v1/console/me", {}, of);
  } catch (error) {
    return token && !/^[\x21-\x7e]+$/.test(token) ? "A token has no such characters." : `The broker does not answer: ${error.message}`;
  }
  if (answer.ok) {
    login = of;
    sessionStorage.setItem(KEPT, of);
    return "";
  }
  const text = await answer.text();
  try {
    return `Not signed in: ${JSON.parse(text).error}.`;
  } catch {
    return `Not signed in: the broker answered with ${answer.status}.`;
  }
}

function enter(form) {
  asking = false;
  form.remove();
  document.body.classList.remove("asking");
  for (const listener of listeners) listener();
}
