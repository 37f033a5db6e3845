"""The entries of an image, by their names and by the texts of their keys."""

from __future__ import annotations

from headway.client.changes import Entry, Key


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
