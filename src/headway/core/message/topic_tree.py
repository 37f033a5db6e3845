"""A tree of topics, each with a value, searched with filters. (The trie of filters is in topics.py.)"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

V = TypeVar("V")


class _Missing:
    """Marks a node without a value, because None is a value."""


_MISSING = _Missing()


class _TreeNode(Generic[V]):
    """A level of the topics in a :class:`TopicTree`. Siblings are linked in the order in which they were added."""

    __slots__ = ("children", "count", "first", "last", "name", "next", "previous", "topic", "value")

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        """The number of topics here and below."""
        self.topic = ""
        self.value: V | _Missing = _MISSING
        self.children: dict[str, _TreeNode[V]] | None = None
        self.first: _TreeNode[V] | None = None
        self.last: _TreeNode[V] | None = None
        self.previous: _TreeNode[V] | None = None
        self.next: _TreeNode[V] | None = None

    def child(self, name: str) -> _TreeNode[V]:
        """Returns the child of that name; a new child goes to the end of the list."""
        if self.children is None:
            self.children = {}
        child = self.children.get(name)
        if child is None:
            child = self.children[name] = _TreeNode(name)
            child.previous = self.last
            if self.last is None:
                self.first = child
            else:
                self.last.next = child
            self.last = child
        return child

    def drop(self, child: _TreeNode[V]) -> None:
        """Removes ``child``, which has neither a value nor children, so a scan that has stopped at it yields nothing.

        The child keeps its ``next``, so such a scan can go on from it."""
        assert self.children is not None
        del self.children[child.name]
        before, after = child.previous, child.next
        if before is None:
            self.first = after
        else:
            before.next = after
        if after is None:
            self.last = before
        else:
            after.previous = before
        child.previous = None


class TopicTree(Generic[V]):
    """Topics with values; a scan finds those that match a filter.

    ``match_filter`` and ``scan`` are lazy. They hold one position per level and no list of further topics, so a scan
    can pause while its consumer is slow. The tree may change between two steps. Guarantees:

    - a topic that exists from the start of the scan to its end is yielded exactly once, with its value at that time;
    - a topic that is set or deleted meanwhile may be yielded or not; one that is deleted and set again may come twice;
    - a topic that is deleted at the time of the step is not yielded.
    """

    def __init__(self) -> None:
        # Two trees, as in FilterTrie: a filter that starts with a wildcard does not match topics that start with "$".
        self._plain: _TreeNode[V] = _TreeNode("")
        self._dollar: _TreeNode[V] = _TreeNode("")
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def _root(self, text: str) -> _TreeNode[V]:
        return self._dollar if text[0] == "$" else self._plain

    def set(self, topic: str, value: V) -> bool:
        """Sets the value of ``topic``. Returns True if it had none."""
        node = self._root(topic)
        for name in topic.split("/"):
            node = node.child(name)
        fresh = node.value is _MISSING
        node.topic = topic
        node.value = value
        if fresh:
            self._size += 1
            for above in self._path(topic) or ():
                above.count += 1
        return fresh

    def _path(self, topic: str) -> list[_TreeNode[V]] | None:
        """Returns the nodes from the root to the topic's node; None if there is no such node."""
        path = [self._root(topic)]
        for name in topic.split("/"):
            child = (path[-1].children or {}).get(name)
            if child is None:
                return None
            path.append(child)
        return path

    def get(self, topic: str) -> V | None:
        """Returns the value of ``topic``; None if it has none."""
        path = self._path(topic)
        value = path[-1].value if path else _MISSING
        return None if isinstance(value, _Missing) else value

    def delete(self, topic: str) -> V | None:
        """Removes ``topic`` and returns its value; None if it had none."""
        path = self._path(topic)
        if path is None:
            return None
        node = path.pop()
        value = node.value
        if isinstance(value, _Missing):
            return None
        node.value = _MISSING
        self._size -= 1
        node.count -= 1
        for above in path:
            above.count -= 1
        while path and not node.children and node.value is _MISSING:
            parent = path.pop()
            parent.drop(node)
            node = parent
        return value

    def count(self, filter_: str) -> int | None:
        """Returns how many topics match a filter; None: that takes a scan, for a wildcard is before its end."""
        above, wild, below = filter_.partition("#")
        if "+" in filter_ or below:
            return None
        node = self._root(filter_)
        if wild:
            above = above.removesuffix("/")
        for name in above.split("/") if above or filter_[0] == "/" else ():
            if (child := (node.children or {}).get(name)) is None:
                return 0
            node = child
        return node.count if wild else int(not isinstance(node.value, _Missing))

    def match_filter(self, filter_: str) -> Iterator[tuple[str, V]]:
        """Yields (topic, value) for each topic that ``filter_`` matches, in any order."""
        return (found for found in self.scan(filter_, 1) if found is not None)

    def scan(self, filter_: str, visits_max: int) -> Iterator[tuple[str, V] | None]:
        """Yields like ``match_filter``, but also None whenever it has visited ``visits_max`` nodes in a row without a
        match."""
        visits = 0
        levels = filter_.split("/")
        last = len(levels) - 1
        # A stack of: node, index of the filter level that its children are matched with, siblings follow.
        places: list[tuple[_TreeNode[V] | None, int, bool]] = [(self._root(filter_), 0, False)]
        while places:
            node, at, wide = places.pop()
            if node is None:
                continue
            visits += 1
            if visits >= visits_max:
                visits = 0
                yield None
            if wide:
                places.append((node.next, at, True))
            level = levels[at] if at <= last else ""
            if at > last or level == "#":
                value = node.value
                if not isinstance(value, _Missing):
                    visits = 0
                    yield node.topic, value
            if at <= last and node.children:
                if level == "#":
                    places.append((node.first, at, True))
                elif level == "+":
                    places.append((node.first, at + 1, True))
                else:
                    places.append((node.children.get(level), at + 1, False))
