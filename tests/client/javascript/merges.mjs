// Reads pairs [value, patch] of base64 as JSON from standard input, and writes what they make, or null.
import { merged } from "../../../src/headway/client/javascript/merge.js";

let text = "";
for await (const piece of process.stdin) text += piece;
const bytes = (one) => new Uint8Array(Buffer.from(one, "base64"));
const made = JSON.parse(text).map(([base, patch]) => merged(bytes(base), bytes(patch)));
console.log(JSON.stringify(made.map((one) => one && Buffer.from(one).toString("base64"))));
