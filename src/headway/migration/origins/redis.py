"""Redis: ``redis.conf``, as far as it is about subscribers (Pub/Sub).

Rules:
- Names are the same in any case of letters. The last line of a repeated setting counts, but lines about buffers add up:
  of each class of clients the last counts. An included file is read in the place of its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from headway.migration.draft import Draft, SoAnyway, Unreadable, rule, said, units
from headway.migration.formats import File, Includes, Node, Where, read_lines
from headway.migration.origins.origin import Origin

LIMITS = "client-output-buffer-limit"
PUBSUB = "pubsub"
DEFAULT = "pubsub 32mb 8mb 60"
"""The limit of subscribers, where a file has none."""
MANY = (LIMITS, "user", "rename-command", "save", "loadmodule", "include")
"""Settings of which each line counts."""
UNITS = {"": 1, "b": 1, "k": 1000, "kb": 1024, "m": 10**6, "mb": 1024**2, "g": 10**9, "gb": 1024**3}


def parse(file: File) -> Node:
    return _with_included(file, Includes())


def _with_included(file: File, includes: Includes) -> Node:
    root = read_lines(file, spaces=True)
    children: list[Node] = []
    for node in root.children:
        node.name, node.text = node.name.lower(), re.sub("[\"']", "", node.text)
        files = includes.load(file, node.text) if node.name == "include" else None
        inner = [one for other in files or () for one in _with_included(other, includes).children]
        for one in inner:
            one.parent = root
        children += inner if files is not None else [node]
    root.children = children
    return root


def read(roots: Sequence[Node], draft: Draft) -> None:
    draft.last_counts(roots, but=MANY)
    limits = [node for root in roots for node in root.all(LIMITS)]
    last = next((node for node in reversed(limits) if PUBSUB in _classes(node)), None)
    for node in limits:
        with draft.reading(node):
            if last is not None and node is not last and PUBSUB in _classes(node):
                raise SoAnyway(f"{last.where} sets it again, and the last line counts")
            _limit(node, draft)
    if last is None:
        default = Node(LIMITS, Where("Redis' default", 0), DEFAULT)
        for made in _rules(default):
            draft.policy("subscribers", ("#",), "").add(made, f"{LIMITS} {DEFAULT}, Redis' default")
    for root in roots:
        draft.put_everywhere("connections_max", _clients, *root.all("maxclients"))
        for node in root.all("maxmemory-clients"):
            with draft.reading(node):
                _memory(node, draft)
        draft.leftovers(root)


def _limit(node: Node, draft: Draft) -> None:
    words = node.text.split()
    if len(words) % 4 or not words:
        raise Unreadable(f"{node.shown[:60]!r} is not a class, two sizes and seconds")
    if PUBSUB not in _classes(node):
        draft.lost(node, why="only the class pubsub has a counterpart")
        return
    made = list(_rules(node))
    for one in made:
        draft.policy("subscribers", ("#",), "").add(one, said(node))
    if not made:
        raise SoAnyway("there is no limit")
    draft.carried(node)


def _classes(node: Node) -> list[str]:
    return node.text.lower().split()[::4]


def _rules(node: Node) -> Iterator[dict[str, object]]:
    words = node.text.split()
    at = len(words) - 4 - 4 * _classes(node)[::-1].index(PUBSUB)
    hard, soft = (units.size(Node(node.name, node.where, word), UNITS) for word in words[at + 1 : at + 3])
    seconds = Node(node.name, node.where, words[at + 3])
    time_s = units.not_negative(units.number(seconds), seconds)
    if hard:
        yield rule("disconnect", {"lag_bytes": units.toml_size(hard)}, name="hard limit")
    if soft and (not hard or soft < hard):
        yield rule("disconnect", {"lag_bytes": units.toml_size(soft)}, name="soft limit", for_=f"{time_s}s")


def _clients(node: Node) -> int:
    return units.within(units.number(node), 1, 1_000_000, node)


def _memory(node: Node, draft: Draft) -> None:
    if node.text.endswith("%") and node.text[:-1].isdecimal() and 0 < int(node.text[:-1]) <= 100:
        draft.put("pool", "memory", node.text, node, "of the machine's memory, not of maxmemory")
    else:
        size_bytes = units.set_or(units.size(node, UNITS), "10 % of the machine's memory is the default")
        draft.put("pool", "memory", units.pool_memory(size_bytes, node), node)


REDIS = Origin("redis", "Redis", ("valkey",), parse, read)
