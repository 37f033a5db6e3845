"""Keys: the part of a record that says which object of its topic the record is about. Conflation and last values keep
the latest record per key.

A key is written as a JSON pointer into the payload ("/tailnum", "/aircraft/id", "/legs/0"), as "topic", or as
"property:NAME" for a user property. Rules:

- A record may have no key (no such field, null, an object or array, payload not JSON): ``None``, never an error.
- A record without a payload has no fields. Where the key is a pointer, its key is the user property ``key``, if it has
  that one: so a delete can say what it deletes (record.py).
- JSON values become text: 7 and 7.0 are both "7", and so is "7"; true is "true".
- A key longer than ``MAX_KEY_CHARS`` counts as none; otherwise one publisher's mistake would fill the state's memory.

Only the outermost field of a pointer is decoded: into a generated struct with just that field, so the JSON decoder
skips all other fields without building them. That is three times as fast as decoding a record of 20 fields to a dict.
The rest of the pointer is resolved within the decoded value.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import msgspec

from headway.core.base import HeadwayError, Reason
from headway.core.message.record import Properties, Record, Run, says

# -- keys --------------------------------------------------------------------------------------------------------------


MAX_KEY_CHARS = 1024
MAX_KEY_DEPTH = 16
STRUCT_FIELDS_MAX = 64
"""With more fields, a payload is decoded as a whole: a struct would be larger than what it saves."""
SAID_KEY = "key"
"""The user property with which a publisher says the key of a record that has no payload to find it in."""
TOLD_KEY = "headway-key"
"""The user property with which the broker tells the key of a record."""

NOT_JSON = (ValueError, RecursionError)
"""Errors that decoding raises: msgspec's own and undecodable text are ValueErrors; deep nesting is a RecursionError."""

_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_decode_any = msgspec.json.Decoder().decode


class BadKey(HeadwayError):
    """A key expression that does not parse."""


def field_reader(names: Sequence[str]) -> Callable[[bytes], Any]:
    """Returns a decoder of JSON objects. Its result has the fields ``names`` as attributes ``f0``, ``f1``, ...; a
    missing field is None.

    The decoder raises one of ``NOT_JSON`` for anything but a JSON object."""
    fields = [f"f{index}" for index in range(len(names))]
    if len(names) > STRUCT_FIELDS_MAX:
        return _reader_of_many(fields, names)
    slots = [(field, object, None) for field in fields]
    rename = dict(zip(fields, names, strict=True))
    try:
        return msgspec.json.Decoder(msgspec.defstruct("Fields", slots, rename=rename, gc=False)).decode
    except ValueError:
        # A name that JSON writes with escapes cannot be a struct's field.
        struct = msgspec.defstruct("Fields", slots, gc=False)
        decode = msgspec.json.Decoder(dict[str, object]).decode

        def read(payload: bytes) -> Any:
            found = decode(payload)
            return struct(*(found.get(name) for name in names))

        return read


def _reader_of_many(fields: Sequence[str], names: Sequence[str]) -> Callable[[bytes], Any]:
    decode = msgspec.json.Decoder(dict[str, object]).decode

    def read(payload: bytes) -> Any:
        return SimpleNamespace(**dict(zip(fields, map(decode(payload).get, names), strict=True)))

    return read


def resolve(value: object, way: Sequence[str]) -> object:
    """Returns the value at the tokens ``way`` of a JSON pointer, from ``value`` on; None if there is none."""
    for token in way:
        if isinstance(value, dict):
            value = value.get(token)
        elif isinstance(value, list) and _INDEX.fullmatch(token) and int(token) < len(value):
            value = value[int(token)]
        else:
            return None
    return value


def key_text(value: object) -> str | None:
    """Returns a JSON value as the text of a key; None for objects, arrays, null and values that are too long."""
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


def said_key(properties: Properties) -> str | None:
    """Returns the key that the properties of a record without a payload say; None if they say none. What the broker
    has told (``TOLD_KEY``) may be the key of another ``[[topic]]``."""
    return key_text(properties.user_value(SAID_KEY))


class KeyExtractor(ABC):
    """Finds the keys of records. Extractors are equal and hashable by their text."""

    __slots__ = ("text",)
    property_name = ""
    """The user property that has the key of a record without payload, if one has."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyExtractor) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"<key {self.text}>"

    def of(self, record: Record) -> str | None:
        return self.find(record.topic, record.properties, record.payload)

    @abstractmethod
    def find(self, topic: str, properties: Properties, payload: bytes) -> str | None:
        """Returns the key of a record with this topic, properties and payload."""

    @abstractmethod
    def of_run(self, run: Run) -> list[str | None]:
        """Returns the keys of all records of a run, without making record objects."""


class _Topic(KeyExtractor):
    __slots__ = ()

    def find(self, topic: str, properties: Properties, payload: bytes) -> str | None:
        return key_text(topic)

    def of_run(self, run: Run) -> list[str | None]:
        return [key_text(run.topic)] * len(run.ends)


class _Property(KeyExtractor):
    __slots__ = ("property_name",)

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self.property_name = name

    def find(self, topic: str, properties: Properties, payload: bytes) -> str | None:
        return key_text(properties.user_value(self.property_name))

    def of_run(self, run: Run) -> list[str | None]:
        # The records of a run share their properties.
        return [key_text(run.properties.user_value(self.property_name))] * len(run.ends)


class _Pointer(KeyExtractor):
    __slots__ = ("read", "way")
    property_name = SAID_KEY

    def __init__(self, text: str, way: Sequence[str]) -> None:
        super().__init__(text)
        first, rest = way[0], way[1:]
        if _INDEX.fullmatch(first):
            # The payload may be an array, so it is decoded as a whole.
            self.read: Callable[[bytes], Any] = _Whole
            self.way = way
        else:
            self.read = field_reader([first])
            self.way = rest

    def find(self, topic: str, properties: Properties, payload: bytes) -> str | None:
        try:
            value = self.read(payload).f0
        except NOT_JSON:
            return None if payload else said_key(properties)
        return key_text(resolve(value, self.way) if self.way else value)

    def of_run(self, run: Run) -> list[str | None]:
        read, way, data = self.read, self.way, run.data
        keys: list[str | None] = []
        for body, end in zip(run.bodies, run.ends, strict=True):
            try:
                value = read(data[body:end]).f0
            except NOT_JSON:
                keys.append(None if end > body else said_key(run.properties))
                continue
            if way:
                value = resolve(value, way)
            # The usual case, without a function call.
            keys.append(value if type(value) is str and len(value) <= MAX_KEY_CHARS else key_text(value))
        return keys


class _Whole:
    """A payload decoded as a whole, with the attribute that a field reader's result has."""

    __slots__ = ("f0",)

    def __init__(self, payload: bytes) -> None:
        self.f0 = _decode_any(payload)


@lru_cache(maxsize=1024)
def compile_key(text: str) -> KeyExtractor:
    """Compiles a key expression: "/pointer/into/json", "topic" or "property:NAME"."""
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


# -- merge patch -------------------------------------------------------------------------------------------------------
#
# JSON merge patches (RFC 7396): a patch has the members that change; null takes a member away.
#
# Members that a patch does not name keep their bytes: they are never decoded, so numbers stay as their publisher wrote
# them. Names that occur twice count once, the last time.


MERGE = "merge"
"""The user property that says that a payload is a patch."""
DELTA = "delta"
"""The event of a record that has only what has changed."""
DEPTH_MAX = 32
"""Levels of objects in a patch, and of objects that are compared."""
MERGED_BYTES_MAX = 1024 * 1024
Members = dict[str, msgspec.Raw]

_members = msgspec.json.Decoder(Members).decode
_anything = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_NULL = b"null"


class BadPatch(HeadwayError):
    """A patch that cannot be merged: it is none, or its result would be too large."""

    reason = Reason.MALFORMED


def says_merge(properties: Properties) -> bool:
    """Tells whether a record with these properties is a patch."""
    return bool(properties.user) and says(properties, MERGE)


def merged(base: bytes, patch: bytes, *, bytes_max: int = MERGED_BYTES_MAX, depth_max: int = DEPTH_MAX) -> bytes:
    """Returns the JSON object ``base`` with the patch merged onto it. Raises :class:`BadPatch`. The limits are for what
    publishers send; a client that applies deltas has higher ones."""
    try:
        _anything(patch)  # what is only passed on below is not looked at closely
        changes = _members(patch)
    except NOT_JSON:
        raise BadPatch("the payload is no JSON merge patch: that is a JSON object") from None
    try:
        members = _members(base)
    except NOT_JSON:
        raise BadPatch("the latest record of the key is no JSON object: publish a whole record") from None
    result = _encode(_merge(members, changes, depth_max))
    if len(result) > bytes_max:
        raise BadPatch(f"the merged record would have {len(result):,} bytes; {bytes_max:,} are allowed")
    return result


def _merge(members: Members, changes: Members, depth: int) -> Members:
    if not depth:
        raise BadPatch(f"a patch has {DEPTH_MAX} levels of objects at most")
    for name, value in changes.items():
        text = bytes(value)
        if text == _NULL:
            members.pop(name, None)
        elif text[:1] == b"{":
            inner = bytes(members[name]) if name in members else b""
            known = _members(inner) if inner[:1] == b"{" else {}
            members[name] = msgspec.Raw(_encode(_merge(known, _members(text), depth - 1)))
        else:
            members[name] = value
    return members


def difference(before: bytes, after: bytes, keep: str | None = None) -> bytes | None:
    """Returns the patch that makes the JSON object ``after`` of ``before``, with the member ``keep`` in any case. None:
    one of them is no JSON object, or no patch can say it, because a patch cannot set a member to null."""
    try:
        before.decode()
        after.decode()
        known, members = _members(before), _members(after)
        patch = _difference(known, members, DEPTH_MAX)
    except NOT_JSON:
        return None
    if patch is None:
        return None
    if keep is not None and keep in members:
        patch.setdefault(keep, members[keep])
    return _encode(patch)


def _difference(before: Members, after: Members, depth: int) -> Members | None:
    patch = {name: msgspec.Raw(_NULL) for name in before if name not in after}
    for name, value in after.items():
        text, old = bytes(value), bytes(before.get(name, b""))
        if text == old:
            continue
        if text == _NULL:
            return None
        if text[:1] == b"{" and old[:1] == b"{":
            inner = _difference(_members(old), _members(text), depth - 1) if depth else None
            if inner is None:
                return None
            patch[name] = msgspec.Raw(_encode(inner))
        elif text[:1] == b"{" and _NULL in text:
            return None
        else:
            patch[name] = value
    return patch
