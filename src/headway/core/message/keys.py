"""The key of a record: which of its topic's things it is about. State, conflation and last values go by it.

A key is written as a JSON pointer into the payload ("/tailnum", "/aircraft/id", "/legs/0"), as "topic", or as
"property:NAME" for a user property. Rules:

- A record may have no key (no such field, null, an object or array, payload not JSON): ``None``, never an error.
- JSON values become text: 7 and 7.0 are both "7", and so is "7"; true is "true".
- A key longer than ``MAX_KEY_CHARS`` is no key, or one publisher's mistake would fill the state's memory.

Reading one field: a generated struct of just that field lets the JSON decoder skip all others without building them
(three times as fast as decoding to a dict on a record of 20 fields). Only the outermost field is read so; the way
from there on is walked.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from headway.core.base import HeadwayError
from headway.core.message.record import Properties, Record, Run

MAX_KEY_CHARS = 1024
MAX_KEY_DEPTH = 16

NOT_JSON = (ValueError, RecursionError)
"""All that decoding can raise: msgspec's own errors and undecodable text are ValueErrors; deep nesting is the other."""

_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_decode_any = msgspec.json.Decoder().decode


class BadKey(HeadwayError):
    """A key that cannot be understood."""


def field_reader(names: Sequence[str]) -> Callable[[bytes], Any]:
    """A decoder of JSON objects to something with attributes ``f0``, ``f1``, ...: the fields ``names``, or None.

    It raises what ``NOT_JSON`` lists for everything that is not a JSON object."""
    fields = [f"f{index}" for index in range(len(names))]
    slots = [(field, object, None) for field in fields]
    rename = dict(zip(fields, names, strict=True))
    try:
        return msgspec.json.Decoder(msgspec.defstruct("Fields", slots, rename=rename, gc=False)).decode
    except ValueError:
        # A name that would stand escaped in JSON cannot be a struct's field.
        struct = msgspec.defstruct("Fields", slots, gc=False)
        decode = msgspec.json.Decoder(dict[str, object]).decode

        def read(payload: bytes) -> Any:
            found = decode(payload)
            return struct(*(found.get(name) for name in names))

        return read


def resolve(value: object, way: Sequence[str]) -> object:
    """What stands at the end of ``way`` below ``value``; None when the way does not lead anywhere."""
    for token in way:
        if isinstance(value, dict):
            value = value.get(token)
        elif isinstance(value, list) and _INDEX.fullmatch(token) and int(token) < len(value):
            value = value[int(token)]
        else:
            return None
    return value


def key_text(value: object) -> str | None:
    """A JSON value as a key."""
    if isinstance(value, str):
        text = value
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, float):
        text = str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
    elif isinstance(value, int):
        text = str(value)
    else:
        return None
    return text if len(text) <= MAX_KEY_CHARS else None


class KeyExtractor(ABC):
    """How to find a record's key. Equal and hashable by what it was written as."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyExtractor) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"<key {self.text}>"

    def of(self, record: Record) -> str | None:
        """The key of one record."""
        return self.find(record.topic, record.properties, record.payload)

    @abstractmethod
    def find(self, topic: str, properties: Properties, payload: bytes) -> str | None:
        """The key of a record that consists of these."""

    @abstractmethod
    def of_run(self, run: Run) -> list[str | None]:
        """The keys of all records of a run; no record objects are made for it."""


class _Topic(KeyExtractor):
    __slots__ = ()

    def find(self, topic: str, properties: Properties, payload: bytes) -> str | None:
        return key_text(topic)

    def of_run(self, run: Run) -> list[str | None]:
        return [key_text(run.topic)] * len(run.ends)


class _Property(KeyExtractor):
    __slots__ = ("name",)

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self.name = name

    def find(self, topic: str, properties: Properties, payload: bytes) -> str | None:
        return key_text(properties.user_value(self.name))

    def of_run(self, run: Run) -> list[str | None]:
        # The records of a run share their properties.
        return [key_text(run.properties.user_value(self.name))] * len(run.ends)


class _Pointer(KeyExtractor):
    __slots__ = ("read", "way")

    def __init__(self, text: str, way: Sequence[str]) -> None:
        super().__init__(text)
        first, rest = way[0], way[1:]
        if _INDEX.fullmatch(first):
            # The payload may be an array: it has to be decoded as it is.
            self.read: Callable[[bytes], Any] = _Whole
            self.way = way
        else:
            self.read = field_reader([first])
            self.way = rest

    def find(self, topic: str, properties: Properties, payload: bytes) -> str | None:
        try:
            value = self.read(payload).f0
        except NOT_JSON:
            return None
        return key_text(resolve(value, self.way) if self.way else value)

    def of_run(self, run: Run) -> list[str | None]:
        read, way, data = self.read, self.way, run.data
        keys: list[str | None] = []
        for body, end in zip(run.bodies, run.ends, strict=True):
            try:
                value = read(data[body:end]).f0
            except NOT_JSON:
                value = None
            if way:
                value = resolve(value, way)
            # The usual case without a call.
            keys.append(value if type(value) is str and len(value) <= MAX_KEY_CHARS else key_text(value))
        return keys


class _Whole:
    """A payload decoded as a whole, in the form that a field reader returns."""

    __slots__ = ("f0",)

    def __init__(self, payload: bytes) -> None:
        self.f0 = _decode_any(payload)


@lru_cache(maxsize=1024)
def compile_key(text: str) -> KeyExtractor:
    """The key written as ``text``: "/pointer/into/json", "topic" or "property:NAME"."""
    if text == "topic":
        return _Topic(text)
    if text.startswith("property:"):
        name = text.removeprefix("property:")
        if not name:
            raise BadKey("key 'property:' lacks the name of the user property")
        return _Property(text, name)
    if not text.startswith("/"):
        raise BadKey(f"key {text[:60]!a} is none of: a JSON pointer such as /tailnum, topic, property:NAME")
    if len(text) > MAX_KEY_CHARS or text.count("/") > MAX_KEY_DEPTH:
        raise BadKey(f"key {text[:60]!a}...: {MAX_KEY_CHARS} characters and {MAX_KEY_DEPTH} levels are allowed")
    if "~" in text.replace("~0", "").replace("~1", ""):
        raise BadKey(f"key {text[:60]!a}: in a JSON pointer '~' is written ~0 and '/' within a name ~1")
    way = [token.replace("~1", "/").replace("~0", "~") for token in text[1:].split("/")]
    return _Pointer(text, way)
