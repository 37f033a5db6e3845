"""Keys: what of a record its topic's state goes by."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.message.keys import MAX_KEY_CHARS, NOT_JSON, BadKey, compile_key, field_reader
from headway.core.message.record import NO_PROPERTIES, Properties, Record, Run

DEEP = b'{"a":' * 100_000
KEYS = [  # key, payload, wanted
    ("/tailnum", b'{"x":1,"tailnum":"N14228","y":[1,{}]}', "N14228"),
    ("/tailnum", b'{"tail\\u006eum":"x"}', "x"),
    ("/tailnum", b'{"tailnum":"a","tailnum":"b"}', "b"),
    ("/tailnum", b'{"tailnum":""}', ""),
    ("/tailnum", b'{"other":"x"}', None),
    ("/tailnum", b'{"tailnum":null}', None),
    ("/tailnum", b'{"tailnum":["x"]}', None),
    ("/tailnum", b'{"tailnum":{"x":1}}', None),
    ("/tailnum", b"", None),
    ("/tailnum", b"N14228", None),
    ("/tailnum", b'["tailnum"]', None),
    ("/tailnum", b'{"tailnum":"x"}trailing', None),
    ("/tailnum", b'{"tailnum":"x"', None),
    ("/tailnum", b'{"tailnum":"\xff"}', None),
    ("/tailnum", b'{"tailnum":"\\ud800"}', None),
    ("/tailnum", DEEP, None),
    ("/tailnum", b'{"tailnum":' + b"9" * 5000 + b"}", None),
    ("/tailnum", b'{"tailnum":1e400}', None),
    ("/tailnum", json.dumps({"tailnum": "x" * MAX_KEY_CHARS}).encode(), "x" * MAX_KEY_CHARS),
    ("/tailnum", json.dumps({"tailnum": "x" * (MAX_KEY_CHARS + 1)}).encode(), None),
    ("/n", b'{"n":7}', "7"),
    ("/n", b'{"n":7.0}', "7"),
    ("/n", b'{"n":-0.0}', "0"),
    ("/n", b'{"n":7.5}', "7.5"),
    ("/n", b'{"n":1e300}', "1e+300"),
    ("/n", b'{"n":123456789012345678901234567890}', "123456789012345678901234567890"),
    ("/n", b'{"n":true}', "true"),
    ("/n", b'{"n":false}', "false"),
    ("/a/b", b'{"a":{"b":"deep"}}', "deep"),
    ("/a/b", b'{"a":"flat"}', None),
    ("/a/b", b'{"a":{"c":1}}', None),
    ("/a/1/b", b'{"a":[0,{"b":"second"}]}', "second"),
    ("/a/01/b", b'{"a":[0,{"b":"second"}]}', None),
    ("/a/2", b'{"a":[0,1]}', None),
    ("/a/-", b'{"a":[0,1]}', None),
    ("/a/1", b'{"a":{"1":"a name"}}', "a name"),
    ("/0", b'["first"]', "first"),
    ("/0", b'{"0":"a name"}', "a name"),
    ("/0/x", b'[{"x":1}]', "1"),
    ("/a~1b", b'{"a/b":"slash"}', "slash"),
    ("/a~0b", b'{"a~b":"tilde"}', "tilde"),
    ("/a~01", b'{"a~1":"both"}', "both"),
    ("/", b'{"":"no name"}', "no name"),
    ('/a"b', b'{"a\\"b":"quote"}', "quote"),
    ('/a"b', b"[1]", None),
    ("/a\\b", b'{"a\\\\b":{"c":1}}', None),
    ("/é", '{"é":"accent"}'.encode(), "accent"),
    ("topic", b"anything", "flights/JFK"),
    ("property:tail", b"anything", "N1"),
    ("property:none", b"anything", None),
    ("property:long", b"anything", None),
]
PROPERTIES = Properties(user=(("tail", "N1"), ("tail", "N2"), ("long", "x" * (MAX_KEY_CHARS + 1))))


@pytest.mark.parametrize(("key", "payload", "wanted"), KEYS, ids=[f"{row[0]} {row[1][:30]!r}" for row in KEYS])
def test_keys(key: str, payload: bytes, wanted: str | None) -> None:
    record = Record("flights/JFK", payload, PROPERTIES)
    assert compile_key(key).of(record) == wanted
    assert compile_key(key).of_run(record.run()) == [wanted]


def test_the_keys_of_a_run() -> None:
    payloads = [b'{"k":1}', b"no", b'{"k":"x"}']
    frames = [b"HEAD" + payload for payload in payloads]
    ends = [len(b"".join(frames[: index + 1])) for index in range(3)]
    bodies = [end - len(payload) for end, payload in zip(ends, payloads, strict=True)]
    run = Run("t", b"".join(frames), ends, bodies, properties=Properties(user=(("p", "v"),)))
    assert compile_key("/k").of_run(run) == ["1", None, "x"]
    assert compile_key("topic").of_run(run) == ["t"] * 3
    assert compile_key("property:p").of_run(run) == ["v"] * 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "none of"), ("tailnum", "none of"), ("property:", "lacks the name"), ("/a~", "~0"), ("/a~2", "~0"),
        ("/a" * 17, "16 levels"), ("/" + "x" * MAX_KEY_CHARS, "characters"), ("Topic", "none of"),
    ],
)  # fmt: skip
def test_bad_keys(text: str, says: str) -> None:
    with pytest.raises(BadKey, match=says):
        compile_key(text)


def test_equal_by_what_was_written() -> None:
    assert compile_key("/a") == compile_key("/a")
    assert hash(compile_key("/a")) == hash(compile_key("/a"))
    assert compile_key("/a") != compile_key("/b")
    assert len({compile_key("/a"), compile_key("/a"), compile_key("topic")}) == 2


NAMES = st.sampled_from(["a", "b", "0", '"', ""])
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@given(JSON, st.lists(NAMES, min_size=1, max_size=3))
def test_pointers_lead_where_they_say(document: object, way: list[str]) -> None:
    value = document
    for token in way:
        if isinstance(value, dict):
            value = value.get(token)
        elif isinstance(value, list) and token == "0" and value:
            value = value[0]
        else:
            value = None
    key = compile_key("/" + "/".join(way)).find("t", NO_PROPERTIES, json.dumps(document).encode())
    if isinstance(value, str):
        assert key == value
    elif isinstance(value, int | float):
        assert key is not None
        assert json.loads(key) == value
    else:
        assert key is None


@given(st.binary(max_size=20), st.sampled_from(["/a", "/0", '/"', "/a/b"]))
def test_no_payload_is_an_error(payload: bytes, key: str) -> None:
    for dressed in (payload, b'{"a":' + payload + b"}"):
        found = compile_key(key).find("t", NO_PROPERTIES, dressed)
        assert found is None or found.encode() is not None


@given(st.binary(max_size=20))
def test_field_readers_raise_only_what_they_say(payload: bytes) -> None:
    for names in (["a", "b"], ["a", 'q"']):
        try:
            found = field_reader(names)(payload)
        except NOT_JSON:
            continue
        assert (found.f0, found.f1) == (None, None) or b"a" in payload
