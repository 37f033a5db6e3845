// mqtt.js as people use it in node: connects, subscribes, publishes to itself, and prints what came.
const mqtt = require("mqtt");
const [url, version, topic] = process.argv.slice(2);
const client = mqtt.connect(url, { protocolVersion: Number(version), clientId: topic.replace("/", "-"), reconnectPeriod: 0 });
const sizes = [0, 1, 100, 125, 126, 16384, 200000];
const got = [];
client.on("connect", () => client.subscribe(topic, { qos: 2 }, () => {
  sizes.forEach((size, i) => client.publish(topic, Buffer.alloc(size, i), { qos: i % 3 }));
}));
client.on("message", (_, payload) => {
  got.push(payload.length);
  if (got.length === sizes.length) client.end(false, {}, () => console.log(JSON.stringify(got.sort((a, b) => a - b))));
});
client.on("error", (error) => { console.log(String(error)); process.exit(1); });
