"""Topics and filters: what is one, what matches, and what covers another."""

from __future__ import annotations

import contextlib
import itertools
import random
import re
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.topics import TOPIC, filters, slow_match

from headway.core.base.errors import Reason
from headway.core.message.topics import (
    MAX_TOPIC_BYTES,
    TREE_LEVELS,
    BadTopic,
    FilterTrie,
    TopicTree,
    covers,
    has_wildcard,
    matcher,
    matches,
    overlaps,
    parse_shared_filter,
    quick_matcher,
    validate_filter,
    validate_topic,
)

GOOD_TOPICS = [
    "a", "/", "//", "/finance", "ACCOUNTS", "Accounts payable", "sport/tennis/player1", "$SYS/x", "$", "a/$b", "a//b",
    "a b", "é/ü", "日本/東京", "\U0001f600", "\ufeff", "x" * MAX_TOPIC_BYTES,
    "/".join("x" * 1000), "/" * MAX_TOPIC_BYTES,
]  # fmt: skip
BAD_TOPICS = [
    ("", "at least one character"), ("a\0b", "NUL"), ("a/+", "wildcard"), ("#", "wildcard"), ("a+b", "wildcard"),
    ("a#", "wildcard"), ("x" * (MAX_TOPIC_BYTES + 1), "65536 bytes"), ("é" * 32768, "65536 bytes"),
    ("a\ud800", "surrogate"),
]  # fmt: skip
GOOD_FILTERS = ["#", "+", "+/+", "/+", "/#", "sport/tennis/#", "sport/+/player1", "$SYS/#", "+/#", "$share"]
BAD_FILTERS = [
    ("", "at least one"), ("sport/tennis#", "'#'"), ("sport/tennis/#/ranking", "'#'"), ("sport+", "'+'"),
    ("+a/b", "'+'"), ("##", "'#'"), ("#/", "'#'"), ("a/#b", "'#'"), ("++", "'+'"), ("+#", "'#'"),
    ("\0", "NUL"), ("x" * (MAX_TOPIC_BYTES + 1), "bytes"),
]  # fmt: skip


@pytest.mark.parametrize("topic", GOOD_TOPICS)
def test_good_topics(topic: str) -> None:
    assert validate_topic(topic) is topic
    assert validate_filter(topic) is topic
    assert not has_wildcard(topic)


@pytest.mark.parametrize(("topic", "says"), BAD_TOPICS)
def test_bad_topics(topic: str, says: str) -> None:
    with pytest.raises(BadTopic, match=re.escape(says)) as caught:
        validate_topic(topic)
    assert caught.value.kind == "topic"
    assert caught.value.reason is Reason.PROTOCOL_ERROR
    assert str(caught.value).isascii()
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("filter_", GOOD_FILTERS)
def test_good_filters(filter_: str) -> None:
    assert validate_filter(filter_) is filter_


@pytest.mark.parametrize(("filter_", "says"), BAD_FILTERS)
def test_bad_filters(filter_: str, says: str) -> None:
    with pytest.raises(BadTopic, match=re.escape(says)) as caught:
        validate_filter(filter_)
    assert caught.value.kind == "filter"


SHARES = [
    ("$share/consumer1/sport/tennis/+", ("consumer1", "sport/tennis/+")), ("$share/g//finance", ("g", "/finance")),
    ("$share/g/#", ("g", "#")), ("$share/g//", ("g", "/")), ("a/b", None), ("$share", None), ("$SHARE/g/a", None),
    ("$sharex/g/a", None), ("a/$share/g", None), ("$share/g/$SYS/#", ("g", "$SYS/#")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), SHARES)
def test_shares(text: str, wanted: tuple[str, str] | None) -> None:
    assert parse_shared_filter(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "$share/",
        "$share//a",
        "$share/g",
        "$share/g/",
        "$share/+/a",
        "$share/g#/a",
        "$share/g/a#",
        "$share/g/\0",
        "$share/\0/a",
    ],
)
def test_bad_shares(text: str) -> None:
    with pytest.raises(BadTopic) as caught:
        parse_shared_filter(text)
    assert caught.value.kind == "filter"


# Filter, topics it matches, topics it does not. The specification's own examples first (sections 4.7.1, 4.7.2).
MATCHES = [
    ("sport/tennis/player1/#", "sport/tennis/player1 sport/tennis/player1/ranking sport/tennis/player1/score/wimbledon",
     "sport/tennis/player2 sport/tennis sport/tennis/player11"),
    ("sport/#", "sport sport/ sport/a", "sports Sport"),
    ("sport/tennis/+", "sport/tennis/player1 sport/tennis/player2", "sport/tennis/player1/ranking"),
    ("sport/+", "sport/", "sport sport/a/b"),
    ("+/+", "/finance a/b / /", "a a/b/c //"),
    ("/+", "/finance /", "finance a/b"),
    ("+", "finance a", "/finance /"),
    ("#", "a a/b / // a/$b", "$SYS $SYS/a $"),
    ("+/monitor/Clients", "a/monitor/Clients /monitor/Clients", "$SYS/monitor/Clients"),
    ("$SYS/#", "$SYS $SYS/a $SYS/a/b", "a SYS/a $SYSX"),
    ("$SYS/monitor/+", "$SYS/monitor/Clients $SYS/monitor/", "$SYS/monitor"),
    ("+/#", "a a/b / a/$", "$a $a/b"),
    ("a", "a", "A aa a/ /a"),
    ("a/+/c", "a/b/c a//c a/$/c", "a/c a/b/b/c"),
    ("a/+/#", "a/ a/b a/b/c", "a"),
    ("a.c/(/+", "a.c/(/x", "abc/(/x"),
    ("/#", "/ /a /a/b //", "a a/b"),
]  # fmt: skip


@pytest.mark.parametrize(("filter_", "yes", "no"), MATCHES, ids=[row[0] for row in MATCHES])
def test_matches(filter_: str, yes: str, no: str) -> None:
    trie: FilterTrie[str] = FilterTrie()
    trie.add(filter_, "value")
    tree: TopicTree[int] = TopicTree()
    for topic in yes.split() + no.split():
        tree.set(topic, 1)
    for topic in yes.split():
        assert matches(filter_, topic), topic
        assert trie.match(topic) == ["value"], topic
    for topic in no.split():
        assert not matches(filter_, topic), topic
        assert trie.match(topic) == [], topic
    assert {topic for topic, _ in tree.match_filter(filter_)} == set(yes.split())


def test_a_newline_is_a_character_like_any_other() -> None:
    assert matches("+/#", "a\n/\nb\n")
    assert not matches("a/+", "a/b\n/c")
    assert not matches("a", "a\n")


def test_matching_takes_time_linear_in_the_topic() -> None:
    """A filter of many wildcards on a topic that almost fits must not be tried in exponentially many ways."""
    deep = "+/" * 100 + "end"
    trie: FilterTrie[int] = FilterTrie()
    for number in range(100):
        trie.add("+/" * number + "a/" + "+/" * (99 - number) + "end", number)
    assert not matches(deep, "a/" * 100 + "enx")
    assert trie.match("a/" * 100 + "enx") == []
    assert len(trie.match("a/" * 100 + "end")) == 100


COVERS = [  # outer, inner, covers, overlaps
    ("#", "a", True, True), ("#", "#", True, True), ("#", "+/#", True, True), ("+/#", "#", True, True),
    ("+/+/#", "#", False, True), ("#", "$SYS/a", False, False), ("+/a", "$SYS/a", False, False),
    ("$SYS/#", "$SYS/a", True, True), ("$SYS/#", "#", False, False), ("$SYS/+", "$SYS/#", False, True),
    ("a/#", "a", True, True), ("a/#", "a/+", True, True), ("a/+", "a/#", False, True), ("a/+/#", "a/#", False, True),
    ("a/+", "a/b", True, True), ("a/b", "a/+", False, True), ("+/b", "a/+", False, True), ("a", "b", False, False),
    ("a/b", "a", False, False), ("a", "a/+", False, False), ("a/+", "a", False, False), ("+", "a/#", False, True),
    ("+", "#", False, True), ("a/+/c", "a/b/+", False, True), ("a/+/c", "a/b/d", False, False), ("+", "+", True, True),
    ("a/b/#", "a/+/#", False, True), ("+", "/#", False, False), ("/+/#", "/#", True, True),
    ("a/+/#", "a/b/#", True, True), ("#", "$x/#", False, False),
]  # fmt: skip


@pytest.mark.parametrize(("outer", "inner", "covered", "overlapping"), COVERS)
def test_covers_and_overlaps(outer: str, inner: str, covered: bool, overlapping: bool) -> None:
    assert covers(outer, inner) is covered
    assert overlaps(outer, inner) is overlapping
    assert overlaps(inner, outer) is overlapping


@given(filters(), TOPIC)
def test_matches_is_brute_force(filter_: str, topic: str) -> None:
    assert matches(filter_, topic) == slow_match(filter_, topic)
    assert bool(matcher(filter_)(topic)) == slow_match(filter_, topic)
    assert bool(quick_matcher(filter_)(topic)) == slow_match(filter_, topic)


ALPHABET = ["a", "b", "c", "", "$a", "other"]
ALL_TOPICS = [
    topic
    for depth in range(1, 5)
    for topic in ("/".join(levels) for levels in itertools.product(ALPHABET, repeat=depth))
    if topic
]


@given(filters(), filters())
def test_covers_and_overlaps_are_brute_force(outer: str, inner: str) -> None:
    """Over topics one level deeper than the filters and with a level that no filter names, the words are exact."""
    narrow = [topic for topic in ALL_TOPICS if slow_match(inner, topic)]
    if inner.count("/") <= 2 and outer.count("/") <= 2:
        assert covers(outer, inner) == all(slow_match(outer, topic) for topic in narrow)
        assert overlaps(outer, inner) == any(slow_match(outer, topic) for topic in narrow)
    if covers(outer, inner):
        assert all(slow_match(outer, topic) for topic in narrow)


@given(st.text(max_size=8))
def test_nothing_but_bad_topic_comes_out(text: str) -> None:
    for check in (validate_topic, validate_filter, parse_shared_filter):
        with contextlib.suppress(BadTopic):
            check(text)


# -- very many levels --------------------------------------------------------------------------------------------------


def fits(filter_: list[str], topic: list[str]) -> bool:
    """Level by level, as MQTT says it."""
    for at, level in enumerate(filter_):
        if level == "#":
            return True
        if at >= len(topic) or level not in ("+", topic[at]):
            return False
    return len(filter_) == len(topic)


@pytest.mark.parametrize("seed", range(20))
def test_filters_of_any_number_of_levels(seed: int) -> None:
    """Also those whose nodes would be too many."""
    rng, trie = random.Random(seed), FilterTrie[str]()
    topics = [[rng.choice("ab") if at < 3 else "a" for at in range(rng.choice((3, *range(125, 133), 400)))]
              for _ in range(30)]  # fmt: skip
    filters = []
    for _ in range(60):
        levels = list(rng.choice(topics))
        for at in rng.sample(range(len(levels)), rng.randint(0, 3)):
            levels[at] = rng.choice("+ab")
        if rng.random() < 0.4:
            levels = [*levels[: rng.randint(0, len(levels))], "#"]
        filters.append("/".join(levels))
    there = dict.fromkeys(filters)
    for filter_ in filters:
        trie.add(validate_filter(filter_), filter_)
    for _ in range(3):
        for levels in topics:
            topic = validate_topic("/".join(levels))
            expected = {filter_ for filter_ in there if fits(filter_.split("/"), levels)}
            assert set(trie.match(topic)) == expected
            assert {filter_ for filter_ in there if matches(filter_, topic)} == expected
        for filter_ in rng.sample(sorted(there), len(there) // 2):
            assert trie.remove(filter_, filter_)
            assert not trie.remove(filter_, filter_)
            del there[filter_]
    assert len(trie) == len(there)


def test_a_filter_takes_up_no_more_for_its_levels() -> None:
    long, trie = "+/" * 32_000 + "+", FilterTrie[int]()
    tracemalloc.start()
    trie.add(long, 1)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 4 * len(long)
    assert trie.match("a/" * 32_000 + "a") == [1]
    assert not trie.match("$a/" + "a/" * 31_999 + "a")
    assert not trie.match("a/" * (TREE_LEVELS - 1) + "a")
