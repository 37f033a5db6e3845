// Opens views one after the other while records come, and tells how many there are, and what they have. The versions of a key
// only rise; `wrong` has what came twice, or in another order.
const words = globalThis.location ? new URLSearchParams(location.search) : new URLSearchParams(process.argv[2]);
const { module, told, url, filter, options, count } = JSON.parse(words.get("what"));
const say = (what) => fetch(told, { method: "POST", body: JSON.stringify(what) });
const { View } = await import(module);
const views = [], wrong = [];

async function follow(view) {
  const latest = new Map([...view.values()].map((entry) => [entry.key, entry.json().version]));
  for await (const change of view.changes()) {
    if (change.type === "stale" || change.type === "current") continue;
    const version = change.entry?.json().version;
    if (change.type !== "put" || version <= latest.get(change.key)) wrong.push({ ...change, entry: undefined, before: undefined, version });
    latest.set(change.key, version);
  }
}

const imageOf = (view) => Object.fromEntries([...view.values()].map((entry) => [entry.key, entry.json().version]));

async function openAll() {
  while (views.length < count) {
    const view = await View.open(url, filter, options);
    follow(view);
    views.push(view);
  }
}

let [failed, reports] = [null, 0];
try {
  openAll().catch((error) => (failed = error));
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, 20));
    if (failed) throw failed;
    const all = views.length === count;
    const images = new Set(all ? views.map((view) => JSON.stringify(Object.entries(imageOf(view)).sort())) : []);
    const image = all ? imageOf(views[0]) : {};
    await say({ reports: (reports += 1), opened: views.length, wrong, images: images.size, image });
  }
} catch (error) {
  await say({ error: `${error.name}: ${error.message}` });
}
