"""Redis: ``redis.conf``, as far as it is about subscribers (Pub/Sub)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headway.migration.draft import Draft, Unreadable, number, rule, said, size, toml_size
from headway.migration.formats import File, Node, Where, read_lines
from headway.migration.origins.origin import Origin

LIMITS = "client-output-buffer-limit"
DEFAULT = "pubsub 32mb 8mb 60"
"""The limit of subscribers, where a file has none."""
UNITS = {"": 1, "b": 1, "k": 1000, "kb": 1024, "m": 10**6, "mb": 1024**2, "g": 10**9, "gb": 1024**3}


def read(roots: Sequence[Node], draft: Draft) -> None:
    limits = [node for root in roots for node in root.all(LIMITS)]
    for node in limits:
        with draft.reading(node):
            _limit(node, draft)
    if not any("pubsub" in node.text for node in limits):
        default = Node(LIMITS, Where("Redis' default", 0), DEFAULT)
        for made in _rules(default):
            draft.policy("subscribers", ("#",), "").add(made, f"{LIMITS} {DEFAULT}, Redis' default")
    for root in roots:
        for node in root.all("maxclients"):
            with draft.reading(node):
                if not 1 <= number(node) <= 1_000_000:
                    raise Unreadable(f"{node.text}: from 1 to 1,000,000")
                for one in draft.all_listeners():
                    one.put("connections_max", number(node), said(node))
                draft.carried(node)
        for node in root.all("maxmemory-clients"):
            with draft.reading(node):
                _memory(node, draft)
        draft.leftovers(root)


def _limit(node: Node, draft: Draft) -> None:
    words = node.text.split()
    if len(words) % 4 or not words:
        raise Unreadable(f"{node.text[:60]!r} is not a class, two sizes and seconds")
    classes = words[::4]
    if "pubsub" not in classes:
        draft.lost(node, why="only the class pubsub has a counterpart")
        return
    made = list(_rules(node))
    for one in made:
        draft.policy("subscribers", ("#",), "").add(one, said(node))
    if made:
        draft.carried(node)
    else:
        draft.same(node, why="there is no limit")


def _rules(node: Node) -> Iterator[dict[str, object]]:
    words = node.text.split()
    at = words.index("pubsub")
    hard, soft = (size(Node(node.name, node.where, word), UNITS) for word in words[at + 1 : at + 3])
    seconds = number(Node(node.name, node.where, words[at + 3]))
    if hard:
        yield rule("disconnect", {"lag_bytes": toml_size(hard)}, name="hard limit")
    if soft and (not hard or soft < hard):
        yield rule("disconnect", {"lag_bytes": toml_size(soft)}, name="soft limit", for_=f"{seconds}s")


def _memory(node: Node, draft: Draft) -> None:
    if node.text.endswith("%") and node.text[:-1].isdecimal() and 0 < int(node.text[:-1]) <= 100:
        draft.put("pool", "memory", node.text, node, "of the machine's memory, not of maxmemory")
        return
    bytes_ = size(node, UNITS)
    if not bytes_:
        draft.same(node, why="10 % of the machine's memory is the default")
        return
    if bytes_ < 1_000_000:
        raise Unreadable(f"{node.text}: a pool has 1 MB at least")
    draft.put("pool", "memory", toml_size(bytes_), node)


def parse(file: File) -> Node:
    return read_lines(file)


REDIS = Origin("redis", "Redis", ("valkey",), parse, read)
