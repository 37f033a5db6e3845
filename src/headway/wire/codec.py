"""What a protocol says of itself to those who know none: each folder here has a ``codec.py`` with its ``CODEC``."""

from __future__ import annotations

from typing import NamedTuple

from headway.core.message import Dialect


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
    queues: Dialect | None = None
    """In which queues keep their records, whoever writes to them and reads from them: one protocol has it."""
