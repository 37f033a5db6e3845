"""Limits that depend on the machine: the memory of pools, and packets that fit into a client's share of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headway.core.base import parse_share, parse_size
from headway.migration.draft.listeners import ListenerDraft
from headway.migration.draft.tables import Keyed
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


def fit_packets(pool: dict[str, Keyed], listeners: Sequence[ListenerDraft], there: int) -> Iterator[str]:
    """Turns the largest packet of a listener into a comment if no client may take up as much. Yields its source."""
    for one in listeners:
        item = one.keys.get("packet_max")
        keys = pool | one.pool
        given = keys.get("max_client_share", Keyed(DEFAULT_SHARE, ""))
        room = _memory(keys, there) * parse_share(given.value)
        if item is not None and one.scheme in SCHEMES and parse_size(item.value) > room:
            one.keys["packet_max"] = item._replace(off=True)
            yield item.source


def _memory(keys: dict[str, Keyed], there: int) -> int:
    item: Any = keys.get("memory")
    text = DEFAULT_MEMORY if item is None or item.off else str(item.value)
    return int(parse_share(text) * there) if text.endswith("%") else parse_size(text)


