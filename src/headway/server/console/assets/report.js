/** A report: fetched with the login of this tab, and shown in a frame without an origin, which can ask nobody. */

import { h, say, shown } from "./dom.js";
import { onLogin, request } from "./login.js";

const path = decodeURIComponent(location.hash.slice(1));
const main = document.getElementById("main");
const said = document.getElementById("said");

async function open() {
  try {
    const answer = await request(`/v1/reports/${path.split("/").map(encodeURIComponent).join("/")}`);
    const text = await answer.text();
    if (!answer.ok) throw new Error(JSON.parse(text).error);
    document.title = `${shown(path)} – Headway`;
    main.replaceChildren(h("iframe", { title: shown(path), sandbox: "allow-scripts", srcdoc: text }));
  } catch (error) {
    say(said, error.message);
  }
}

onLogin(open);
addEventListener("hashchange", () => location.reload());
open();
