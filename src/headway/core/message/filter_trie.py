"""A trie of filters finds all filters that match a topic, in one walk over its levels."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from headway.core.message.topics import DeepFilter, has_wildcard, is_deep

H = TypeVar("H", bound=Hashable)


class _TrieNode(Generic[H]):
    """A level of the filters with wildcards. "+" is a child like any other (no topic has a level of that name)."""

    __slots__ = ("below", "children", "values")

    def __init__(self) -> None:
        self.children: dict[str, _TrieNode[H]] = {}
        self.values: dict[H, None] = {}
        """Values of the filters that end at this level."""
        self.below: dict[H, None] = {}
        """Values of the filters that go on from this level with "#"."""


class FilterTrie(Generic[H]):
    """Filters with values; ``match`` finds the values of all filters that match a topic.

    Filters without wildcards are not in the tree: a dict has them. The order of the values that ``match`` returns
    depends only on the calls of ``add`` and ``remove`` before it.
    """

    def __init__(self) -> None:
        self._exact: dict[str, dict[H, None]] = {}
        self._deep: dict[str, tuple[DeepFilter, dict[H, None]]] = {}
        # Filters that start with "$" have a tree of their own, which only topics that start with "$" look into.
        self._plain: _TrieNode[H] = _TrieNode()
        self._dollar: _TrieNode[H] = _TrieNode()
        self._size = 0
        self.visited = 0
        """Nodes that the last match visited."""

    def __len__(self) -> int:
        """Returns the number of (filter, value) pairs."""
        return self._size

    def _root(self, text: str) -> _TrieNode[H]:
        return self._dollar if text[0] == "$" else self._plain

    def add(self, filter_: str, value: H) -> bool:
        """Adds a value. Returns False if the filter has it already."""
        if not has_wildcard(filter_):
            values = self._exact.setdefault(filter_, {})
        elif is_deep(filter_):
            if filter_ not in self._deep:
                self._deep[filter_] = DeepFilter(filter_), {}
            values = self._deep[filter_][1]
        else:
            node = self._root(filter_)
            for level in filter_.split("/"):
                if level == "#":
                    break
                child = node.children.get(level)
                if child is None:
                    child = node.children[level] = _TrieNode()
                node = child
            values = node.below if filter_[-1] == "#" else node.values
        if value in values:
            return False
        values[value] = None
        self._size += 1
        return True

    def remove(self, filter_: str, value: H) -> bool:
        """Removes a value, and nodes that are empty then. Returns False if the filter does not have the value."""
        if has_wildcard(filter_) and is_deep(filter_):
            return self._remove_deep(filter_, value)
        path: list[tuple[_TrieNode[H], str]] = []
        node = self._root(filter_)
        if has_wildcard(filter_):
            for level in filter_.split("/"):
                if level == "#":
                    break
                child = node.children.get(level)
                if child is None:
                    return False
                path.append((node, level))
                node = child
            values = node.below if filter_[-1] == "#" else node.values
        else:
            values = self._exact.get(filter_, {})
        if value not in values:
            return False
        del values[value]
        self._size -= 1
        if not has_wildcard(filter_):
            if not values:
                del self._exact[filter_]
            return True
        for parent, level in reversed(path):
            if node.children or node.values or node.below:
                break
            del parent.children[level]
            node = parent
        return True

    def _remove_deep(self, filter_: str, value: H) -> bool:
        _, values = self._deep.get(filter_, (None, {}))
        if value not in values:
            return False
        del values[value]
        self._size -= 1
        if not values:
            del self._deep[filter_]
        return True

    def match(self, topic: str) -> list[H]:
        """Returns the values of all filters that match ``topic``, each once."""
        exact = self._exact.get(topic)
        found = [exact] if exact else []
        visited = 0
        if self._deep and is_deep(topic + "/"):  # a filter that matches may have one level more, "#"
            levels = topic.split("/")
            visited += sum(1 + test.runs for test, _ in self._deep.values())
            found += [values for test, values in self._deep.values() if test.fits(topic, levels)]
        root = self._root(topic)
        if root.children or root.below:
            visited += self._descend([root], topic.split("/"), found)
        self.visited = visited
        if not found:
            return []
        if len(found) == 1:
            return list(found[0])
        return list(dict.fromkeys(value for values in found for value in values))

    @staticmethod
    def _descend(nodes: list[_TrieNode[H]], levels: list[str], found: list[dict[H, None]]) -> int:
        """Follows all levels at once. ``nodes`` are the nodes that the levels so far lead to, at most one per filter.
        Returns the number of nodes visited."""
        visited = 0
        for level in levels:
            visited += len(nodes)
            following: list[_TrieNode[H]] = []
            for node in nodes:
                if node.below:
                    found.append(node.below)
                children = node.children
                if children:
                    child = children.get(level)
                    if child is not None:
                        following.append(child)
                    child = children.get("+")
                    if child is not None:
                        following.append(child)
            if not following:
                return visited
            nodes = following
        for node in nodes:
            if node.values:
                found.append(node.values)
            if node.below:
                found.append(node.below)
        return visited + len(nodes)
