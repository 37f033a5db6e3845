"""Topic names and filters, and the trie that finds the filters that match a topic.

The form is MQTT's: "/" separates levels; in a filter, "+" stands for one whole level, and "#" as the last level stands
for its parent and all levels below. Rules:

- A topic and a filter have at least one character; levels may be empty ("/a" has two, the first of them empty).
- "a/#" matches "a" and everything below it; "a/+" matches "a/" but not "a".
- A filter that starts with a wildcard does not match a topic that starts with "$".
- There may be any number of levels; only the length is limited.
- Only ``validate_*`` and ``parse_shared_filter`` check their input. All other functions expect valid topics and
  filters.

:class:`FilterTrie` has filters and finds those that match a topic (lanes, policies). The tree in topic_tree.py has
topics and finds those that match a filter (retained messages).
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable

from headway.core.base import HeadwayError, Reason, RecentCache

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
