"""What a protocol says of itself to those who know none: each folder here has a ``codec.py`` with its ``CODEC``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from headway.core.message import Dialect


class QueueForm(NamedTuple):
    """How queues keep what is published to them, and the journal what is said of them, whoever speaks to them."""

    dialect: Dialect
    write_table: Callable[[dict[str, Any]], bytes]
    """Arguments of exchanges and bindings,"""
    read_table: Callable[[bytes], dict[str, Any]]
    """... and back."""
    read_headers: Callable[[bytes], dict[str, Any]]
    """What exchanges may route by, of native properties."""


class Codec(NamedTuple):
    port: int
    """Where clients look for it."""
    packet_bytes_max: int
    """Of a packet, where a listener does not say otherwise; of a message where a packet is but a part of one."""
    in_flight_max: int
    """What a client that does not say how much is given at once, where a listener does not say otherwise."""
    dialects: tuple[type[Dialect], ...] = ()
    """Of subscriptions that the journal keeps: msgspec structs, each tagged with a name of its own as ``dialect``. One
    may be without, for it was the first there was."""
    queues: QueueForm | None = None
    """One protocol has it."""
