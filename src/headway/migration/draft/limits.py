"""Limits that depend on the machine: the memory of pools, and packets that fit into a client's share of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from headway.core.base import parse_share, parse_size
from headway.migration.draft.listeners import ListenerDraft
from headway.migration.draft.tables import Keyed
from headway.server.config import TOPIC_POOLS_MAX
from headway.server.protocols import SCHEMES

DEFAULT_MEMORY = "10%"
DEFAULT_SHARE = "50%"


def fit_memory(pool: dict[str, Keyed], others: Sequence[dict[str, Keyed]], there: int) -> Iterator[str]:
    """Turns the memory of all pools into comments if they have more together than there is. Yields their sources."""
    if sum(_memory(pool | one, there) for one in ({}, *others)) <= there:
        return
    for keys in (pool, *others):
        item = keys.get("memory")
        if item is not None:
            keys["memory"] = item._replace(off=True)
            yield item.source


def fit_topics(topics: Iterable[dict[str, Keyed]], pool: dict[str, Keyed], there: int) -> int:
    """Turns the pools of topics into comments that would take more than half of ``[pool]``, which is for all else.
    Returns the memory of the others."""
    taken = count = 0
    for keys in topics:
        item = keys.get("pool")
        if item is not None:
            size = parse_size(item.value)
            if count == TOPIC_POOLS_MAX or taken + size > _memory(pool, there) // 2:
                keys["pool"] = item._replace(off=True, source=f"{item.source}; no room: topics get half of [pool]")
            else:
                taken, count = taken + size, count + 1
    return taken


def fit_packets(
    pool: dict[str, Keyed], listeners: Sequence[ListenerDraft], there: int, taken_bytes: int
) -> Iterator[str]:
    """Turns the largest packet of a listener into a comment if no client may take up as much. Yields its source.
    ``taken_bytes``: what topics have of ``[pool]``."""
    for one in listeners:
        item = one.keys.get("packet_max")
        keys = pool | one.pool
        given = keys.get("max_client_share", Keyed(DEFAULT_SHARE, ""))
        apart = one.pool.keys() - {"max_client_share"}
        room = (_memory(keys, there) - (0 if apart else taken_bytes)) * parse_share(given.value)
        if item is not None and one.scheme in SCHEMES and parse_size(item.value) > room:
            one.keys["packet_max"] = item._replace(off=True)
            yield item.source


def _memory(keys: dict[str, Keyed], there: int) -> int:
    item: Any = keys.get("memory")
    text = DEFAULT_MEMORY if item is None or item.off else str(item.value)
    return int(parse_share(text) * there) if text.endswith("%") else parse_size(text)


