// A view in a page or in node. It tells the test what it shows, again and again: what it says of itself, its image, the
// changes of the view as a whole, and whether all changes together make the image.
const words = globalThis.location ? new URLSearchParams(location.search) : new URLSearchParams(process.argv[2]);
const { module, told, url, filter, options } = JSON.parse(words.get("what"));
const say = (what) => fetch(told, { method: "POST", body: JSON.stringify(what) });
const { View } = await import(module);

const sum = new Map(), kinds = [], gone = [];
const name = (one) => `${one.topic} ${one.key}`;

function add(change) {
  if (change.type === "put") sum.set(name(change), change.entry);
  else if (change.before) sum.delete(name(change));
  else kinds.push(change.type);
  if (change.type === "out_of_focus") gone.push([change.key, change.why]);
}

function shown(view) {
  const image = {};
  for (const entry of view.values()) image[entry.key] = entry.json().version;
  return image;
}

try {
  const view = await View.open(url, filter, options);
  const changes = view.changes();
  for (const entry of view.values()) sum.set(name(entry), entry);
  (async () => {
    for await (const change of changes) add(change);
  })();
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, 30));
    const at = Date.now() / 1000; // before its age is asked: a machine that is busy may stop us in between
    const { staleMs, current, whyStale, asOf, size, clientId } = view;
    const adds = sum.size === size && [...view.values()].every((entry) => sum.get(name(entry))?.equals(entry));
    await say({
      at, stale: staleMs / 1000, current, whyStale, offset: asOf.offset, image: shown(view), size,
      adds, kinds: kinds.slice(1), gone, clientId, texts: size < 9 ? [...view.values()].map((entry) => entry.text()) : null,
    });
  }
} catch (error) {
  await say({ error: `${error.name}: ${error.message}` });
}
