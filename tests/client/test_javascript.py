"""The view in JavaScript without a broker: its own tests in node, and its keys beside the broker's."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pytest

import headway
from headway.core.message import BadKey, Properties, Record, compile_key

HERE = Path(__file__).parent / "javascript"
MODULE = Path(headway.__file__).parent / "client" / "javascript"
NODE = pytest.mark.skipif(shutil.which("node") is None, reason="there is no node: apt-get install -y nodejs")
Case = tuple[str, str, bytes, tuple[tuple[str, str], ...]]


@NODE
@pytest.mark.parametrize("file", sorted(HERE.glob("*.test.mjs")), ids=lambda file: file.name)
def test_what_node_tests(file: Path) -> None:
    done = subprocess.run(["node", "--test", str(file)], capture_output=True, text=True, check=False)
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


def test_the_package_has_all_that_it_imports_and_nothing_else() -> None:
    told = json.loads((MODULE / "package.json").read_text())
    assert told["version"] == headway.__version__
    texts = [path.read_text() for path in MODULE.glob("*.js")]
    imported = {name for text in texts for name in re.findall(r'from "\./([\w-]+\.js)"', text)}
    assert not [text for text in texts if re.search(r'from "[^.]', text)]
    assert imported | {"headway-view.js"} == {path.name for path in MODULE.glob("*.js")}
