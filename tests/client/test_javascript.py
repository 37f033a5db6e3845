"""The view in JavaScript without a broker: its own tests in node, and its keys beside the broker's."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.interop.waiting import PATIENCE_S

import headway
from headway.client.changes import Change, Current, Delete, Entry, Gap, Key, OutOfFocus, Put, Stale
from headway.client.image import Image, Sent
from headway.core.message import BadKey, BadPatch, Properties, Record, compile_key, merged

HERE = Path(__file__).parent / "javascript"
MODULE = Path(headway.__file__).parent / "client" / "javascript"
NODE_MIN = 20


def node_version() -> int:
    """Returns the major version of node; 0 if there is none."""
    if shutil.which("node") is None:
        return 0
    said = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False).stdout
    return int(said.lstrip("v").partition(".")[0] or 0)


NODE = pytest.mark.skipif(node_version() < NODE_MIN, reason=f"there is no node {NODE_MIN} or later")
Case = tuple[str, str, bytes, tuple[tuple[str, str], ...]]


@NODE
@pytest.mark.parametrize("file", sorted(HERE.glob("*.test.mjs")), ids=lambda file: file.name)
def test_what_node_tests(file: Path) -> None:
    # A view that a test which failed has left open keeps node running.
    command = ["timeout", f"{PATIENCE_S:.0f}", "node", "--test", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert re.search(r"tests [1-9]\d", done.stdout), done.stdout


def keys_in_node(cases: list[Case]) -> list[Any]:
    written = [(key, topic, base64.b64encode(payload).decode(), user) for key, topic, payload, user in cases]
    done = subprocess.run(["node", str(HERE / "keys.mjs")], input=json.dumps(written), capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)
    return found


def key_here(case: Case) -> Any:
    expression, topic, payload, user = case
    try:
        return compile_key(expression).of(Record(topic, payload, Properties(user=user)))
    except BadKey:
        return {"error": "TypeError"}


PAYLOADS = [
    b'{"a": "x"}', b'{"a": ""}', b'{"a": 7}', b'{"a": 7.0}', b'{"a": -0.0}', b'{"a": 7.5}', b'{"a": 1e3}',
    b'{"a": 1e-4}',
    b'{"a": 0.00001}', b'{"a": -1.25e-07}', b'{"a": 1.5e-300}', b'{"a": 0.1}', b'{"a": 123456.789}', b'{"a": true}',
    b'{"a": false}', b'{"a": null}', b'{"a": {}}', b'{"a": [5, "b", {"c": 1}]}', b'{"a": {"b": 1, "": 2}}', b'{"b": 1}',
    b"{}", b"[]", b'["x", "y"]', b'"a"', b"17", b"", b"not JSON", b'{"a": "\xff"}', b'\xef\xbb\xbf{"a": "x"}',
    b'{"a": "x", "a": "y"}', b'{"a": "\xe2\x82\xac \\u20ac"}', b'{"x/y": 1, "m~n": 2}', b'{"__proto__": 3}',
    b'{"a": 4503599627370497.5}', b'{"a": 9007199254740991}', b'{"a": "' + 1024 * b"k" + b'"}',
    b'{"a": "' + 1025 * b"k" + b'"}',
    b'{"a": "' + 1024 * "\N{GRINNING FACE}".encode() + b'"}',
]  # fmt: skip
EXPRESSIONS = [
    "topic", "property:p", "property:", "/a", "/a/b", "/a/", "/a/0", "/a/01", "/a/2/c", "/0", "/", "/x~1y", "/m~0n",
    "/m~n",
    "/length", "/a/length", "/__proto__", "/toString", "/constructor/name", "a", "/a" * 16, "/a" * 17,
]  # fmt: skip
USERS: list[tuple[tuple[str, str], ...]] = [(), (("p", "1"), ("p", "2")), (("key", "said"), ("headway-key", "told"))]


@NODE
def test_keys_are_those_of_the_broker() -> None:
    cases = [(key, "flights/x", payload, user) for key in EXPRESSIONS for payload in PAYLOADS for user in USERS]
    rng = Random(7)
    for _ in range(2000):
        small = rng.uniform(-1, 1) * 10 ** rng.randint(-20, 15)
        number = rng.choice([rng.uniform(-1e6, 1e6), small, rng.randint(-99, 99)])
        cases.append(("/a", "t", json.dumps({"a": number}).encode(), ()))
    differ = [
        (case, found, here) for case, found in zip(cases, keys_in_node(cases), strict=True)
        if found != (here := key_here(case))
    ]  # fmt: skip
    assert not differ, differ[:5]


@NODE
@pytest.mark.parametrize("number", [b"9007199254740992", b"9007199254740993", b"-1e300"])
def test_a_key_that_javascript_cannot_read_exactly_is_refused(number: bytes) -> None:
    assert keys_in_node([("/a", "t", b'{"a": ' + number + b"}", ())]) == [{"error": "RangeError"}]


# -- the image --------------------------------------------------------------------------------------------------------

KEYS = [Key("t", "a"), Key("t", "b"), Key("t", None), Key("u", "a")]
Call = tuple[Any, ...]


def calls_of(seed: int) -> list[Call]:
    """Calls as a follower makes them, and in orders in which none does."""
    rng, calls, offset, now = Random(seed), list[Call](), 0, 0
    for _ in range(150):
        kind = rng.choices(
            ["put", "patch", "delete", "out_of_focus", "gap", "proved", "look", "cut", "begin", "resume", "granted"],
            [40, 8, 10, 5, 2, 20, 5, 3, 4, 4, 4],
        )[0]
        offset += rng.choice([0, 1, 1, 1, 2])
        now += rng.choice([0, 125, 750, 3000])  # eighths of a second, which both have exactly
        if kind == "begin" and rng.random() < 0.5:
            offset = rng.randint(0, 5)  # another life of the broker
        key = rng.choice(KEYS)
        calls.append({
            "put": ("put", key.topic, key.key, offset, rng.choice(['{"v":1}', '{"v":2,"w":7.0}', "x"])),
            "patch": ("patch", key.topic, key.key, offset, rng.choice(['{"v":3}', '{"w":null}', '{"u":{"a":1}}'])),
            "delete": ("delete", key.topic, key.key, offset),
            "out_of_focus": ("out_of_focus", key.topic, key.key, offset, "changed"),
            "gap": ("gap", rng.randint(0, 3), rng.choice(["conflated", "discarded"]), rng.choice([0, offset])),
            "proved": ("proved", offset - rng.choice([0, 0, 1]), rng.choice([0, 0, 6000]), offset, now - 250, now),
            "look": ("look", now), "cut": ("cut", "why"), "begin": ("begin",), "resume": ("resume",),
            "granted": ("granted", offset),
        }[kind])  # fmt: skip
    return calls


def words(change: Change) -> list[Any]:
    match change:
        case Put(key, entry, before):
            return ["put", *key, entry.offset, None if before is None else before.offset]
        case Delete(key, before):
            return ["delete", *key, before.offset]
        case OutOfFocus(key, before):
            return ["out_of_focus", *key, before.offset]
        case Gap(records, reason, last):
            return ["gap", records, reason, last]
        case Stale(why):
            return ["stale", why]
        case Current(as_of):
            return ["current", as_of]


def call(image: Image, name: str, *said: Any) -> Any:
    match name:
        case "put" | "patch":
            return getattr(image, name)(Key(*said[:2]), Entry(said[3].encode(), said[2]))
        case "delete" | "out_of_focus":
            return getattr(image, name)(Key(*said[:2]), *said[2:])
        case "gap":
            return image.gap(Gap(*said))
        case "proved":
            offset, age, last, at, now = said
            return image.proved(Sent(offset, age / 1000, last), at / 1000, now / 1000)
        case "look":
            return image.look(said[0] / 1000)
    return getattr(image, name)(*said)


@NODE
def test_the_image_in_javascript_is_that_in_python() -> None:
    worlds = [calls_of(seed) for seed in range(300)]
    done = subprocess.run(["node", str(HERE / "worlds.mjs")], input=json.dumps(worlds), capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen: Counter[str] = Counter()
    for seed, (calls, found) in enumerate(zip(worlds, json.loads(done.stdout), strict=True)):
        image = Image(5.0)
        for number, (one, told) in enumerate(zip(calls, found["told"], strict=True)):
            expected = [words(change) for change in call(image, *one) or ()]
            assert sorted(map(str, told)) == sorted(map(str, expected)), (seed, number, one)
            seen.update(change[0] for change in expected)
        shown = [[*key, entry.offset, entry.payload.decode()] for key, entry in image.entries.of.items()]
        assert found["shown"] == shown, seed
        assert (found["offset"], found["wants"], found["whole"]) == (image.offset, image.wants_snapshot, image.whole)
    assert min(seen[kind] for kind in ("put", "delete", "out_of_focus", "gap", "stale", "current")) > 100, seen


VALUES: list[Any] = [
    1, 1.5, -0.0, 2**60 + 1, 1e300, "", 'a"]}{', "a\\", "\u20ac", True, None, [], {}, [1, {"a": "]"}], {"a": {"b": 1}},
    {"a": []},
]  # fmt: skip


def some_object(rng: Random) -> dict[str, Any]:
    return {rng.choice(["a", "b", "c", "__proto__", 'q"{']): rng.choice(VALUES) for _ in range(rng.randint(0, 4))}


@NODE
def test_patches_are_merged_as_in_python() -> None:
    """To the byte: what a patch does not name is not written anew."""
    rng = Random(11)
    written: list[tuple[bytes, bytes]] = [
        (b'{"a" : 1.0 , "n":9007199254740993, "a":2 }', b' {"b":[ 1, {"x":"}"} ]}'), (b"{}", b"{}"), (b"[]", b"{}"),
        (b"{}", b"7"), (b"", b"{}"), (b"{}", b""), (b"{}", b'{"a":\xff}'), (b"null", b"{}"), (b"{}", b'{"a":1,}'),
    ]  # fmt: skip
    for _ in range(500):
        spaces = rng.choice([{}, {"indent": 1}, {"separators": (",", ":")}])
        base, patch = (json.dumps(some_object(rng), ensure_ascii=rng.random() < 0.5, **spaces).encode() for _ in "ab")
        written.append((base, patch))
    told = json.dumps([[base64.b64encode(one).decode() for one in pair] for pair in written])
    done = subprocess.run(["node", str(HERE / "merges.mjs")], input=told, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for pair, made in zip(written, json.loads(done.stdout), strict=True):
        try:
            expected = merged(*pair)
        except BadPatch:
            expected = None
        assert (None if made is None else base64.b64decode(made)) == expected, pair


def test_the_package_has_all_that_it_imports_and_nothing_else() -> None:
    told = json.loads((MODULE / "package.json").read_text())
    assert told["version"] == headway.__version__
    texts = [path.read_text() for path in MODULE.glob("*.js")]
    imported = {name for text in texts for name in re.findall(r'from "\./([\w-]+\.js)"', text)}
    assert not [text for text in texts if re.search(r'from "[^.]', text)]
    assert imported | {"headway-view.js"} == {path.name for path in MODULE.glob("*.js")}
