"""Topic names, filters and the two trees, held against the words of MQTT 5 and against brute force."""

from __future__ import annotations

import contextlib
import itertools
import random
import re
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.base.errors import Reason
from headway.core.message.topic_tree import TopicTree
from headway.core.message.topics import (
    MAX_TOPIC_BYTES,
    TREE_LEVELS,
    BadTopic,
    FilterTrie,
    covers,
    has_wildcard,
    matcher,
    matches,
    overlaps,
    parse_shared_filter,
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


def test_trie_holds_distinct_values() -> None:
    trie: FilterTrie[str] = FilterTrie()
    assert trie.add("a/+", "x")
    assert not trie.add("a/+", "x")
    assert trie.add("a/#", "x")
    assert trie.add("a/b", "x")
    assert trie.add("a/b", "y")
    assert len(trie) == 4
    assert trie.match("a/b") == ["x", "y"]
    assert trie.remove("a/b", "x")
    assert not trie.remove("a/b", "x")
    assert not trie.remove("a/c", "x")
    assert not trie.remove("q/+", "x")
    assert not trie.remove("a/+/+", "x")
    assert sorted(trie.match("a/b")) == ["x", "y"]
    assert trie.remove("a/+", "x")
    assert trie.remove("a/#", "x")
    assert trie.match("a/b") == ["y"]
    assert len(trie) == 1


def test_an_emptied_trie_keeps_no_nodes() -> None:
    trie: FilterTrie[int] = FilterTrie()
    filters = ["a/+/c/#", "a/+/c", "a/+", "#", "+", "$SYS/+", "$SYS/#", "a/b", "+/b/#"]
    for filter_ in filters:
        trie.add(filter_, 1)
    random.Random(1).shuffle(filters)
    for filter_ in filters:
        assert trie.remove(filter_, 1)
    assert len(trie) == 0
    assert not trie._exact
    for root in (trie._plain, trie._dollar):
        assert not root.children
        assert not root.values
        assert not root.below


def test_tree_set_get_delete() -> None:
    tree: TopicTree[int | None] = TopicTree()
    assert tree.set("a/b", 1)
    assert not tree.set("a/b", 2)
    assert tree.set("a", None)
    assert len(tree) == 2
    assert tree.get("a/b") == 2
    assert tree.get("a/b/c") is None
    assert list(tree.match_filter("a")) == [("a", None)]
    assert tree.delete("a/x") is None
    assert tree.delete("a/b/c") is None
    assert tree.delete("a/b") == 2
    assert tree.delete("a/b") is None
    assert len(tree) == 1
    assert list(tree.match_filter("#")) == [("a", None)]
    tree.delete("a")
    assert len(tree) == 0
    assert not tree._plain.children
    assert tree._plain.first is tree._plain.last is None


def test_a_walk_over_a_changing_tree() -> None:
    tree: TopicTree[int] = TopicTree()
    for number in range(10):
        tree.set(f"a/{number}", number)
    walk = tree.match_filter("a/+")
    assert next(walk) == ("a/0", 0)
    for number in (1, 2, 5, 9):  # the next ones, one in the middle, the last
        tree.delete(f"a/{number}")
    tree.set("a/3", 33)
    assert list(walk) == [("a/3", 33), ("a/4", 4), ("a/6", 6), ("a/7", 7), ("a/8", 8)]


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abcd")), max_size=20))
def test_the_chain_of_siblings_is_whole_and_holds_no_dead(steps: list[tuple[bool, str]]) -> None:
    tree: TopicTree[int] = TopicTree()
    for put, topic in steps:
        if put:
            tree.set(topic, 1)
        else:
            tree.delete(topic)
        root, chain = tree._plain, []
        node = root.first
        while node is not None:
            assert node.previous is (chain[-1] if chain else None)
            chain.append(node)
            node = node.next
        assert chain == list((root.children or {}).values())
        assert root.last is (chain[-1] if chain else None)


def test_a_walk_outlives_the_branch_it_stands_on() -> None:
    tree: TopicTree[int] = TopicTree()
    for topic in ("a/x/1", "a/x/2", "b/1"):
        tree.set(topic, 1)
    walk = tree.match_filter("#")
    assert next(walk)[0] == "a/x/1"
    tree.delete("a/x/1")
    tree.delete("a/x/2")
    assert list(walk) == [("b/1", 1)]


def test_a_walk_keeps_no_list_of_what_is_to_come() -> None:
    """Each step costs the same whether there are ten siblings or ten thousand: the places held do not grow."""
    tree: TopicTree[int] = TopicTree()
    for number in range(10_000):
        tree.set(f"a/{number}", number)
    walk = tree.scan("#", 1_000_000)
    for _ in range(5_000):
        next(walk)
    assert len(walk.gi_frame.f_locals["places"]) <= 3  # type: ignore[attr-defined]


LEVEL = st.sampled_from(["a", "b", "", "$a", "c"])
TOPIC = st.lists(LEVEL, min_size=1, max_size=4).map("/".join).filter(bool)


@st.composite
def filters(draw: st.DrawFn) -> str:
    levels = draw(st.lists(st.one_of(LEVEL, st.just("+")), max_size=4))
    if not levels or draw(st.booleans()):
        levels.append("#")
    return "/".join(levels) or "+"


def slow_match(filter_: str, topic: str) -> bool:
    """The specification's words, as plainly as can be."""
    if topic[0] == "$" and filter_[0] in "+#":
        return False

    def go(wanted: list[str], given_: list[str]) -> bool:
        if wanted == ["#"]:
            return True
        if not wanted or not given_:
            return wanted == given_
        return wanted[0] in ("+", given_[0]) and go(wanted[1:], given_[1:])

    return go(filter_.split("/"), topic.split("/"))


@given(filters(), TOPIC)
def test_matches_is_brute_force(filter_: str, topic: str) -> None:
    assert matches(filter_, topic) == slow_match(filter_, topic)
    assert bool(matcher(filter_)(topic)) == slow_match(filter_, topic)


@given(st.lists(st.tuples(st.booleans(), filters(), st.integers(0, 3)), max_size=30), st.lists(TOPIC, max_size=10))
def test_trie_is_brute_force(steps: list[tuple[bool, str, int]], topics: list[str]) -> None:
    trie: FilterTrie[int] = FilterTrie()
    pairs: set[tuple[str, int]] = set()
    for add, filter_, value in steps:
        if add:
            assert trie.add(filter_, value) == ((filter_, value) not in pairs)
            pairs.add((filter_, value))
        else:
            assert trie.remove(filter_, value) == ((filter_, value) in pairs)
            pairs.discard((filter_, value))
    assert len(trie) == len(pairs)
    for topic in topics:
        found = trie.match(topic)
        assert len(found) == len(set(found))
        assert set(found) == {value for filter_, value in pairs if slow_match(filter_, topic)}


@given(st.dictionaries(TOPIC, st.integers(), max_size=20), filters())
def test_tree_is_brute_force(values: dict[str, int], filter_: str) -> None:
    tree: TopicTree[int] = TopicTree()
    for topic, value in values.items():
        tree.set(topic, value)
    found = list(tree.match_filter(filter_))
    assert len(found) == len(dict(found))
    assert dict(found) == {topic: value for topic, value in values.items() if slow_match(filter_, topic)}


@given(st.lists(TOPIC, max_size=15), filters(), st.lists(st.tuples(st.booleans(), TOPIC), max_size=30))
def test_a_walk_sees_once_what_stays(start: list[str], filter_: str, steps: list[tuple[bool, str]]) -> None:
    tree: TopicTree[int] = TopicTree()
    for topic in start:
        tree.set(topic, 0)
    touched = {topic for _, topic in steps}
    walk = tree.match_filter(filter_)
    seen = []
    for put, topic in steps:
        for found, _ in walk:
            assert tree.get(found) is not None
            seen.append(found)
            break
        if put:
            tree.set(topic, 0)
        else:
            tree.delete(topic)
    seen.extend(found for found, _ in walk)
    left = set(start)
    for put, topic in steps:
        left = left | {topic} if put else left - {topic}
    assert sorted(topic for topic, _ in tree.match_filter("#")) == sorted(t for t in left if t[0] != "$")
    assert all(slow_match(filter_, topic) for topic in seen)
    stays = [topic for topic in seen if topic not in touched]
    assert sorted(stays) == sorted({topic for topic in start if slow_match(filter_, topic)} - touched)


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
