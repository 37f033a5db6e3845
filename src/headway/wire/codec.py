"""The facts about a protocol for code that knows none: each folder here has a ``codec.py`` with its ``CODEC``."""

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
    """Native properties that exchanges may route by."""


class Codec(NamedTuple):
    port: int
    """Where clients look for it."""
    packet_bytes_max: int
    """Default limit of a packet; of a message where a packet is only a part of one."""
    in_flight_max: int
    """Default window of a client that asks for none."""
    dialects: tuple[type[Dialect], ...] = ()
    """Dialects of subscriptions that the journal keeps: msgspec structs, each tagged with a name of its own as
    ``dialect``. One may be without, for it was the first there was."""
    queues: QueueForm | None = None
    """One protocol has it."""
