"""Trees and tries of topics, and walks through them while they change."""

from __future__ import annotations

import random

from hypothesis import example, given
from hypothesis import strategies as st
from tests.core.topics import TOPIC, filters, slow_match

from headway.core.message.topics import FilterTrie, TopicTree


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
@example({"a": 0}, "a/")
@example({"/a": 0, "b": 0}, "/#")
@example({"/a": 0, "a": 0}, "#")
def test_tree_is_brute_force(values: dict[str, int], filter_: str) -> None:
    tree: TopicTree[int] = TopicTree()
    for topic, value in values.items():
        tree.set(topic, value)
    found = list(tree.match_filter(filter_))
    assert len(found) == len(dict(found))
    assert dict(found) == {topic: value for topic, value in values.items() if slow_match(filter_, topic)}
    wild = "+" in filter_ or "#" in filter_[:-1]
    assert tree.count(filter_) == (None if wild else len(found))


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
    assert tree.count("#") == sum(t[0] != "$" for t in left)
    assert all(slow_match(filter_, topic) for topic in seen)
    stays = [topic for topic in seen if topic not in touched]
    assert sorted(stays) == sorted({topic for topic in start if slow_match(filter_, topic)} - touched)
