// Reads cases [expression, topic, payload, user properties] as JSON from standard input, and writes their keys.
import { compileKey } from "../../../src/headway/client/javascript/keys.js";

let text = "";
for await (const piece of process.stdin) text += piece;
const keys = JSON.parse(text).map(([expression, topic, payload, user]) => {
  try {
    return compileKey(expression)(topic, Buffer.from(payload, "base64"), user);
  } catch (error) {
    return { error: error.name };
  }
});
console.log(JSON.stringify(keys));
