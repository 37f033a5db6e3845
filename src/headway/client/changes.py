"""Changes of an image: what ``View.changes()`` yields, and the entries that an image has.

``match`` tells them apart::

    match change:
        case Put(key, entry, before): ...
        case Delete(key, before): ...
        case Gap(records, reason): ...
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

import msgspec

# -- changes -----------------------------------------------------------------------------------------------------------


class Key(NamedTuple):
    """The name of an entry: as in the broker's state, a key is one of its topic."""

    topic: str
    key: str | None
    """The value that the topic is keyed by, as text; None for records that have none."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """The latest record of a key."""

    payload: bytes
    offset: int
    """The record's number in the broker; of two entries the later one has the higher."""
    properties: tuple[tuple[str, str], ...] = ()
    """The publisher's user properties."""
    content_type: str | None = None

    def json(self) -> Any:
        """Returns the payload, decoded. Raises msgspec.DecodeError if it is not JSON."""
        return msgspec.json.decode(self.payload)


class Put(msgspec.Struct, frozen=True, gc=False):
    """A key is new or has changed."""

    key: Key
    entry: Entry
    before: Entry | None = None
    """The entry that it replaces; None if the key is new."""


class Delete(msgspec.Struct, frozen=True):
    """A key is no more: it was deleted, or a new snapshot is without it."""

    key: Key
    before: Entry


class OutOfFocus(msgspec.Struct, frozen=True):
    """A key does not match the selector any more."""

    key: Key
    before: Entry
    why: str = ""
    """``changed``: its latest record does not match; ``deleted``: it is no more."""


class Gap(msgspec.Struct, frozen=True):
    """Records were left out for this client. A gap of the reason ``conflated`` harms no image: the latest record of
    each key comes all the same. After any other one the view is stale until it has a new snapshot."""

    records: int
    """How many records; 0 if the broker does not know."""
    reason: str
    last: int = 0
    """The offset of the last of them."""


class Stale(msgspec.Struct, frozen=True):
    """From now on the image may be behind the broker's state."""

    why: str


class Current(msgspec.Struct, frozen=True):
    """The image is the broker's state again, as far as it is selected."""

    as_of: int
    """All changes up to this offset are in it."""


Change = Put | Delete | OutOfFocus | Gap | Stale | Current


class AsOf(NamedTuple):
    """The point at which an image was known to be the broker's state."""

    offset: int
    """All changes up to this offset are in the image."""
    time: datetime | None
    """When that was, by this machine's clock, in UTC; None if there is no image yet."""


# -- entries -----------------------------------------------------------------------------------------------------------
#
# The entries of an image, by their names and by the texts of their keys.


class Entries:
    __slots__ = ("_topics", "of")

    def __init__(self) -> None:
        self.of: dict[Key, Entry] = {}
        self._topics: dict[str | None, str | tuple[str, ...]] = {}
        """The topics that have a key of this text: nearly always one, as it is."""

    def copy(self) -> Entries:
        other = Entries()
        other.of, other._topics = self.of.copy(), self._topics.copy()
        return other

    def put(self, key: Key, entry: Entry) -> Entry | None:
        """Puts an entry in its place. Returns the one that was there."""
        before = self.of.get(key)
        if before is None:
            topic = key.topic
            others = self._topics.setdefault(key.key, topic)
            if others is not topic:
                self._topics[key.key] = (*_each(others), topic)
        self.of[key] = entry
        return before

    def pop(self, key: Key) -> Entry | None:
        """Removes an entry and returns it; None if there is none."""
        before = self.of.pop(key, None)
        if before is not None:
            others = tuple(topic for topic in _each(self._topics[key.key]) if topic != key.topic)
            if others:
                self._topics[key.key] = others
            else:
                del self._topics[key.key]
        return before

    def find(self, text: str) -> Entry:
        """Returns the entry whose key has this text. Raises KeyError if there is none, or more than one."""
        topics = self._topics.get(text)
        if topics is None:
            raise KeyError(text)
        first, *others = _each(topics)
        if others:
            raise KeyError(f"{text!r} is a key of {1 + len(others)} topics: say Key({first!r}, {text!r})")
        return self.of[Key(first, text)]


def _each(topics: str | tuple[str, ...]) -> tuple[str, ...]:
    return (topics,) if isinstance(topics, str) else topics
