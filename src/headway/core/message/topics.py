"""Topic names and filters, and the trie that finds the filters that match a topic.

The form is MQTT's: "/" separates levels; in a filter, "+" stands for one whole level, and "#" as the last level stands
for its parent and all levels below. Rules:

- A topic and a filter have at least one character; levels may be empty ("/a" has two, the first of them empty).
- "a/#" matches "a" and everything below it; "a/+" matches "a/" but not "a".
- A filter that starts with a wildcard does not match a topic that starts with "$".
- There may be any number of levels; only the length is limited.
- Only ``validate_*`` and ``parse_shared_filter`` check their input. All other functions expect valid topics and
  filters.

:class:`FilterTrie` has filters and finds those that match a topic (lanes, policies). ``TopicTree`` has
topics and finds those that match a filter (retained messages).
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from headway.core.base import HeadwayError, Reason, RecentCache

# -- topics ------------------------------------------------------------------------------------------------------------


MAX_TOPIC_BYTES = 65_535
TREE_LEVELS = 128
"""Topics and filters with more levels are not put into trees, in which each level is a node."""
MATCHERS_BYTES_MAX = 8_000_000
MATCHER_BYTES, MATCHER_CHAR_BYTES = 500, 100
"""Measured sizes of a filter's test, which is a regular expression."""
SHARE_PREFIX = "$share/"
RENEW = "$headway/renew"
"""The only topic with $ to which clients may publish: a message renews the leases of its publisher's subscriptions."""
_LITERAL = re.compile(r"[^/+#]+")
_BAD_WILDCARD = re.compile(r"[^/]#|#[\s\S]|[^/]\+|\+[^/]")


class BadTopic(HeadwayError):
    """An invalid topic name or filter. ``kind`` is "topic" or "filter", for codecs whose replies differ."""

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
    """Returns ``text`` for an error: in ASCII, and cut to 60 characters."""
    return ascii(text if len(text) <= 60 else text[:57] + "...")


def validate_topic(topic: str) -> str:
    """Returns ``topic`` if records may be published to it, else raises :class:`BadTopic`."""
    _validate(topic, "topic")
    if "+" in topic or "#" in topic:
        raise BadTopic(f"topic {_shown(topic)} contains a wildcard; wildcards are for filters", "topic")
    return topic


def validate_filter(filter_: str) -> str:
    """Returns ``filter_`` if it is valid, else raises :class:`BadTopic`. :func:`parse_shared_filter` splits
    "$share/..." before."""
    _validate(filter_, "filter")
    wrong = _BAD_WILDCARD.search(filter_)
    if wrong is not None:
        where = "'#' must be the whole of the last level" if "#" in wrong[0] else "'+' must be the whole of its level"
        raise BadTopic(f"filter {_shown(filter_)}: {where}", "filter")
    return filter_


def parse_shared_filter(text: str) -> tuple[str, str] | None:
    """Returns the validated (group, filter) of "$share/group/filter"; None for a filter that is not shared."""
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
    """Tells whether a valid filter has a wildcard, so that it may match more than one topic."""
    return "+" in filter_ or "#" in filter_


def shape_of(filter_: str) -> str:
    """Returns where a filter has its wildcards. A topic is matched by one filter of each shape at most."""
    return _LITERAL.sub("", filter_)


def is_deep(text: str) -> bool:
    """Tells whether a topic or filter has too many levels for a tree."""
    return text.count("/") >= TREE_LEVELS


def matcher(filter_: str) -> Callable[[str], object]:
    """Returns a test that is true for the topics that ``filter_`` matches. It runs in C, and is meant to be reused."""
    if is_deep(filter_):
        return DeepFilter(filter_)
    return _matchers[filter_]


def quick_matcher(filter_: str) -> Callable[[str], object]:
    """Returns the same test as ``matcher``, made in a small part of the time that a regular expression takes to
    compile. It is slower to run: for filters of clients, which may bring a new one with every request."""
    return DeepFilter(filter_) if has_wildcard(filter_) else filter_.__eq__


class DeepFilter:
    """The test of a filter with very many levels, for which a regular expression would take too long to compile, or of
    one that is used for few topics."""

    __slots__ = ("_dollar", "_levels", "_literals", "_more", "_runs")

    def __init__(self, filter_: str) -> None:
        levels = filter_.split("/")
        self._dollar = filter_[0] in "+#"
        self._more = levels[-1] == "#"
        if self._more:
            levels.pop()
        self._levels = len(levels)
        self._literals = [level for level in levels if level != "+"]
        self._runs = array("I")
        """For each run of levels without wildcards, the index of its first level, and their number."""
        begin = 0
        for at in [*(at for at, level in enumerate(levels) if level == "+"), len(levels)]:
            if at > begin:
                self._runs.extend((begin, at - begin))
            begin = at + 1

    def __call__(self, topic: str) -> bool:
        return self.fits(topic, topic.split("/"))

    @property
    def runs(self) -> int:
        return len(self._runs) // 2

    def fits(self, topic: str, levels: list[str]) -> bool:
        """Tells whether a topic matches. ``levels`` are the topic's levels, split once for all filters."""
        count = len(levels)
        if count < self._levels or (count > self._levels and not self._more) or (self._dollar and topic[0] == "$"):
            return False
        runs, literals, start = self._runs, self._literals, 0
        for at, size in zip(runs[::2], runs[1::2], strict=True):
            if levels[at : at + size] != literals[start : start + size]:
                return False
            start += size
        return True


def _matcher(filter_: str) -> Callable[[str], object]:
    if not has_wildcard(filter_):
        return filter_.__eq__
    # No two neighbouring parts can match the same character, so the match does not backtrack: time is linear.
    head, hash_, _ = filter_.partition("#")
    head = head.removesuffix("/") if hash_ else head
    pattern = "/".join("[^/]*" if level == "+" else re.escape(level) for level in head.split("/"))
    if hash_:
        pattern = r"[\s\S]*" if filter_ == "#" else pattern + r"(?:/[\s\S]*)?"
    return re.compile((r"(?!\$)" if filter_[0] in "+#" else "") + pattern).fullmatch


_matchers: RecentCache[str, Callable[[str], object]] = RecentCache(
    _matcher, MATCHERS_BYTES_MAX, lambda filter_, _: MATCHER_BYTES + MATCHER_CHAR_BYTES * len(filter_)
)


def matches(filter_: str, topic: str) -> bool:
    """Tells whether ``filter_`` matches ``topic``."""
    return bool(matcher(filter_)(topic))


def _least_levels(filter_: str) -> list[str]:
    """Returns the filter's levels, at the least depth that a matching topic can have.

    A topic has at least one level, and not a single empty one; so "#" and "/#" get one more level."""
    return (filter_[:-1] + "+/#" if filter_ in ("#", "/#") else filter_).split("/")


def spellings(name: str) -> tuple[str, ...]:
    """Returns a name, and for ``$queue/NAME`` with dots in it also the one in which the words of the queue's name are
    levels. So ``$queue/jobs/#`` covers the queue ``jobs.eu``, for permissions and policies alike."""
    if name.startswith("$queue/") and "." in name:
        return name, name.replace(".", "/")
    return (name,)


def covers(outer: str, inner: str) -> bool:
    """Tells whether every topic that matches ``inner`` also matches ``outer``."""
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
    """Tells whether some topic matches both filters."""
    if (one[0] in "+#" and other[0] == "$") or (other[0] in "+#" and one[0] == "$"):
        return False
    left, right = _least_levels(one), _least_levels(other)
    for a, b in zip(left, right, strict=False):
        if "#" in (a, b):
            return True
        if a != b and "+" not in (a, b):
            return False
    # The longer filter may only go on with a "#", which matches its parent, too.
    rest = left[len(right) :] or right[len(left) :]
    return rest in ([], ["#"])


def table_name(filter: str) -> str:
    """Returns the default SQL name of a recorded topic: its levels without wildcards, joined by "_".

    It is in small letters, because SQL ignores case; empty if the filter has only wildcards."""
    return "_".join(level for level in filter.lower().split("/") if level not in ("+", "#", ""))


# -- topic tree --------------------------------------------------------------------------------------------------------
#
# A tree of topics, each with a value, searched with filters. (The trie of filters is above.)


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


# -- filter trie -------------------------------------------------------------------------------------------------------
#
# A trie of filters finds all filters that match a topic, in one walk over its levels.


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
