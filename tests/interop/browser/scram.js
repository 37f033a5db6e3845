// mqtt.js with MQTT 5's enhanced authentication: SCRAM-SHA-256 by node's own crypto. Prints what became of it.
const mqtt = require("mqtt");
const crypto = require("crypto");
const [url, user, password] = process.argv.slice(2);
const METHOD = "SCRAM-SHA-256";
const hmac = (key, text) => crypto.createHmac("sha256", key).update(text).digest();
const bare = `n=${user},r=${crypto.randomBytes(18).toString("base64")}`;
let signature = "";
const client = mqtt.connect(url, {
  protocolVersion: 5, clientId: "mqtt.js", reconnectPeriod: 0,
  properties: { authenticationMethod: METHOD, authenticationData: Buffer.from("n,," + bare) },
});
client.handleAuth = (packet, answer) => {
  const challenge = packet.properties.authenticationData.toString();
  const said = Object.fromEntries(challenge.split(",").map((part) => [part[0], part.slice(2)]));
  const salted = crypto.pbkdf2Sync(password, Buffer.from(said.s, "base64"), Number(said.i), 32, "sha256");
  const key = hmac(salted, "Client Key");
  const last = `c=biws,r=${said.r}`;
  const signed = [bare, challenge, last].join(",");
  const mask = hmac(crypto.createHash("sha256").update(key).digest(), signed);
  const proof = Buffer.from(key.map((byte, i) => byte ^ mask[i])).toString("base64");
  signature = "v=" + hmac(hmac(salted, "Server Key"), signed).toString("base64");
  answer(null, {
    cmd: "auth", reasonCode: 24,
    properties: { authenticationMethod: METHOD, authenticationData: Buffer.from(`${last},p=${proof}`) },
  });
};
client.on("connect", (connack) => {
  const shown = connack.properties.authenticationData.toString() === signature;
  client.subscribe(["of/" + user, "of/another"], (_, granted) => {
    console.log(JSON.stringify([shown, granted.map((one) => one.qos)]));
    client.end();
  });
});
client.on("error", (error) => { console.log(JSON.stringify(error.code)); process.exit(0); });
