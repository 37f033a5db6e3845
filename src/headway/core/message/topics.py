"""Topic names and filters, and the tree that matches one against the other.

The inner form is MQTT's: levels separated by "/", filters in which "+" stands for one whole level and a last "#" for
all levels from its parent down. Rules held by everything in here:

- A topic and a filter have at least one character; levels may be empty ("/a" has two, the first of them empty).
- "a/#" matches "a" and everything below it; "a/+" matches "a/" but not "a".
- A filter that starts with a wildcard does not match a topic that starts with "$".
- There may be any number of levels; only the length is limited.
- Only ``validate_*`` and ``parse_share`` look for bad input. All else takes valid topics and filters as given.

:class:`FilterTrie` keeps filters and is asked with a topic (lanes, policies). topic_tree.py keeps topics and is asked
with a filter (retained messages).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Generic, TypeVar

from headway.core.base import HeadwayError, Reason

MAX_TOPIC_BYTES = 65_535
TREE_LEVELS = 128
"""Each level is a node of a tree. What has more of them than anybody needs stands apart, whole."""
CACHED_CHARS = 512
"""Tests of longer filters are not kept: there may be many, and each is larger than its filter."""
SHARE_PREFIX = "$share/"

H = TypeVar("H", bound=Hashable)


class BadTopic(HeadwayError):
    """A topic name or filter that cannot be. ``kind`` is "topic" or "filter", for codecs whose replies differ."""

    reason = Reason.PROTOCOL_ERROR

    def __init__(self, text: str, kind: str) -> None:
        super().__init__(text)
        self.kind = kind


def _validate(text: str, kind: str) -> None:
    if not text:
        raise BadTopic(f"a {kind} has at least one character", kind)
    if "\0" in text:
        raise BadTopic(f"{kind} {_shown(text)} contains a NUL character", kind)
    if text.isascii():
        size = len(text)
    else:
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            raise BadTopic(f"{kind} {_shown(text)} contains half a surrogate pair", kind) from None
    if size > MAX_TOPIC_BYTES:
        raise BadTopic(f"{kind} {_shown(text)} has {size} bytes, {MAX_TOPIC_BYTES} are allowed", kind)


def _shown(text: str) -> str:
    """``text`` as it stands in an error: ASCII, and not the whole of a very long one."""
    return ascii(text if len(text) <= 60 else text[:57] + "...")


def validate_topic(topic: str) -> str:
    """``topic`` itself when records may be published to it."""
    _validate(topic, "topic")
    if "+" in topic or "#" in topic:
        raise BadTopic(f"topic {_shown(topic)} contains a wildcard; wildcards are for filters", "topic")
    return topic


def validate_filter(filter_: str) -> str:
    """``filter_`` itself when it can be subscribed to. ("$share/..." is taken apart by :func:`parse_share` first.)"""
    _validate(filter_, "filter")
    if "#" in filter_ or "+" in filter_:
        levels = filter_.split("/")
        for number, level in enumerate(levels, 1):
            if "#" in level and (level != "#" or number != len(levels)):
                raise BadTopic(f"filter {_shown(filter_)}: '#' must be the whole of the last level", "filter")
            if "+" in level and level != "+":
                raise BadTopic(f"filter {_shown(filter_)}: '+' must be the whole of its level", "filter")
    return filter_


def parse_shared_filter(text: str) -> tuple[str, str] | None:
    """The (group, filter) of "$share/group/filter", both validated; None for a filter that is not shared."""
    if not text.startswith(SHARE_PREFIX):
        return None
    group, slash, filter_ = text[len(SHARE_PREFIX) :].partition("/")
    if not group or not slash or not filter_:
        raise BadTopic(f"filter {_shown(text)} is not of the form $share/GROUP/FILTER", "filter")
    if "+" in group or "#" in group:
        raise BadTopic(f"filter {_shown(text)}: the group of a shared subscription has no wildcards", "filter")
    _validate(group, "filter")
    return group, validate_filter(filter_)


def has_wildcard(filter_: str) -> bool:
    """Whether a valid filter matches more than the topic of its own name."""
    return "+" in filter_ or "#" in filter_


def is_deep(text: str) -> bool:
    """Whether a topic or filter has so many levels that it stands apart."""
    return text.count("/") >= TREE_LEVELS


def matcher(filter_: str) -> Callable[[str], object]:
    """A test to keep and call often: true for the topics that ``filter_`` matches. The work is done in C."""
    if is_deep(filter_):
        return _DeepFilter(filter_)
    return _cached_matcher(filter_) if len(filter_) <= CACHED_CHARS else _matcher(filter_)


class _DeepFilter:
    """The same for filters with very many levels: a pattern of all of them would take too long to make."""

    __slots__ = ("_dollar", "_levels", "_literals", "_more")

    def __init__(self, filter_: str) -> None:
        levels = filter_.split("/")
        self._dollar = filter_[0] in "+#"
        self._more = levels[-1] == "#"
        if self._more:
            levels.pop()
        self._levels = len(levels)
        self._literals: list[tuple[int, list[str]]] = []
        """Runs of levels that are no wildcards, and where each begins."""
        for at, level in enumerate(levels):
            if level == "+":
                continue
            last, run = self._literals[-1] if self._literals else (0, [])
            if run and last + len(run) == at:
                run.append(level)
            else:
                self._literals.append((at, [level]))

    def __call__(self, topic: str) -> bool:
        return self.fits(topic, topic.split("/"))

    @property
    def runs(self) -> int:
        return len(self._literals)

    def fits(self, topic: str, levels: list[str]) -> bool:
        """``levels``: those of the topic, taken apart once for all filters."""
        count = len(levels)
        if count < self._levels or (count > self._levels and not self._more) or (self._dollar and topic[0] == "$"):
            return False
        return all(levels[at : at + len(run)] == run for at, run in self._literals)


def _matcher(filter_: str) -> Callable[[str], object]:
    if not has_wildcard(filter_):
        return filter_.__eq__
    # No two neighbouring parts can match the same character, so there is nothing to try twice: time is linear.
    head, hash_, _ = filter_.partition("#")
    head = head.removesuffix("/") if hash_ else head
    pattern = "/".join("[^/]*" if level == "+" else re.escape(level) for level in head.split("/"))
    if hash_:
        pattern = r"[\s\S]*" if filter_ == "#" else pattern + r"(?:/[\s\S]*)?"
    return re.compile((r"(?!\$)" if filter_[0] in "+#" else "") + pattern).fullmatch


_cached_matcher = lru_cache(maxsize=4096)(_matcher)


def matches(filter_: str, topic: str) -> bool:
    """Whether ``topic`` is one of those that ``filter_`` stands for."""
    return bool(matcher(filter_)(topic))


def _least_levels(filter_: str) -> list[str]:
    """The levels, with the least depth that a topic of it can have spelled out.

    There is no topic of no level, nor one of a single empty level: "#" needs one more, and so does "/#"."""
    return (filter_[:-1] + "+/#" if filter_ in ("#", "/#") else filter_).split("/")


def covers(outer: str, inner: str) -> bool:
    """Whether every topic that matches ``inner`` also matches ``outer``."""
    if outer[0] in "+#" and inner[0] == "$":
        return False
    wide, narrow = _least_levels(outer), _least_levels(inner)
    for at, level in enumerate(wide):
        if level == "#":
            return True
        if at == len(narrow) or narrow[at] == "#" or level not in ("+", narrow[at]):
            return False
    return len(wide) == len(narrow)


def overlaps(one: str, other: str) -> bool:
    """Whether some topic matches both filters."""
    if (one[0] in "+#" and other[0] == "$") or (other[0] in "+#" and one[0] == "$"):
        return False
    left, right = _least_levels(one), _least_levels(other)
    for a, b in zip(left, right, strict=False):
        if "#" in (a, b):
            return True
        if a != b and "+" not in (a, b):
            return False
    # One has ended: the other may only go on with a "#", which matches its parent too.
    rest = left[len(right) :] or right[len(left) :]
    return rest in ([], ["#"])


class _TrieNode(Generic[H]):
    """A level of the filters with wildcards. "+" is a child like any other (no topic has a level of that name)."""

    __slots__ = ("below", "children", "values")

    def __init__(self) -> None:
        self.children: dict[str, _TrieNode[H]] = {}
        self.values: dict[H, None] = {}
        """Of the filters that end here."""
        self.below: dict[H, None] = {}
        """Of the filters that go on from here with "#"."""


class FilterTrie(Generic[H]):
    """Filters, each with its distinct values, asked which values a topic is for.

    Filters without wildcards never enter the tree: they are one dict lookup. The order of what ``match`` returns
    depends on nothing but the calls of ``add`` and ``remove`` before it.
    """

    def __init__(self) -> None:
        self._exact: dict[str, dict[H, None]] = {}
        self._deep: dict[str, tuple[_DeepFilter, dict[H, None]]] = {}
        # Filters that start with "$" have a tree of their own, and so do the topics: that is the whole of the $-rule.
        self._plain: _TrieNode[H] = _TrieNode()
        self._dollar: _TrieNode[H] = _TrieNode()
        self._size = 0
        self.visited = 0
        """Nodes that the last match looked at."""

    def __len__(self) -> int:
        """How many (filter, value) pairs there are."""
        return self._size

    def _root(self, text: str) -> _TrieNode[H]:
        return self._dollar if text[0] == "$" else self._plain

    def add(self, filter_: str, value: H) -> bool:
        """False when ``value`` stood under ``filter_`` already."""
        if not has_wildcard(filter_):
            values = self._exact.setdefault(filter_, {})
        elif is_deep(filter_):
            if filter_ not in self._deep:
                self._deep[filter_] = _DeepFilter(filter_), {}
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
        """False when ``value`` did not stand under ``filter_``. Nodes that nothing needs any more go with it."""
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
        """The values of all filters that match ``topic``, each once."""
        exact = self._exact.get(topic)
        found = [exact] if exact else []
        visited = 0
        if self._deep and is_deep(topic + "/"):  # of a filter's levels, the last may be "#"
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
        """``nodes`` are all those that the levels so far can have led to: at most one per filter, never a blow-up.
        Returns how many nodes those were."""
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


def table_name(filter: str) -> str:
    """What SQL calls a recorded topic, unless the file says otherwise: the levels that are no wildcards, joined by "_".
    In small letters, for SQL does not tell them from capitals; empty where nothing is left."""
    return "_".join(level for level in filter.lower().split("/") if level not in ("+", "#", ""))
