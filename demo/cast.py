"""The cast: who plays which part. The broker is told nothing of it; it has only its policies."""

from __future__ import annotations

from enum import StrEnum

import msgspec

RECEIVE_MAXIMUM = 20
ACK_AFTER_S = 3.0
TRICKLE_RECORDS_PER_S = 60
STALL_AFTER_S = 4.0
FLAP_READS_S = 1.0
FLAP_STALLS_S = 4.0
SLOW_WORK_S = 0.002
DESK_READS_S = 8.0


class Behaviour(StrEnum):
    """How a consumer treats what it gets."""

    HEALTHY = "healthy"
    STALL = "stalls"
    TRICKLE = "trickles"
    ACK_LATE = "acks late"
    FLAP = "flaps"
    OVERWORKED = "over-subscribed"


class Role(msgspec.Struct, frozen=True):
    """One consumer (or, without a behaviour, the publisher): its client id, what it reads, and how."""

    name: str
    filter: str = ""
    behaviour: Behaviour | None = None
    qos: int = 0
    policy: str = ""
    """A policy it asks for by name, instead of the one its topics select."""
    about: str = ""
    host: str = "127.0.0.1"
    port: int = 0
    seconds: float = 0.0
    confirmed: tuple[str, ...] = ()
    """Carriers whose flights the publisher sends with QoS 1."""

    @property
    def healthy(self) -> bool:
        return self.behaviour is Behaviour.HEALTHY


PUBLISHER = Role("airports")
CONFIRMED = ("US",)
DESK = Role("desk-delays", "flights/#", policy="strict", seconds=DESK_READS_S,
            about=f"a view, whose reader looks away after {DESK_READS_S:.0f} s")  # fmt: skip

CONSUMERS = (
    Role("board-EWR", "flights/EWR/#", Behaviour.HEALTHY, about="reads as it comes"),
    Role("board-JFK", "flights/JFK/#", Behaviour.HEALTHY, about="reads as it comes"),
    Role("board-LGA", "flights/LGA/#", Behaviour.HEALTHY, about="reads as it comes"),
    Role("desk-US", "flights/+/US", Behaviour.HEALTHY, qos=1, about="reads and acknowledges as it comes"),
    Role("frozen-EWR", "flights/EWR/#", Behaviour.STALL, about=f"stops reading after {STALL_AFTER_S:.0f} s"),
    Role("modem-JFK", "flights/JFK/#", Behaviour.TRICKLE, about=f"reads {TRICKLE_RECORDS_PER_S} records a second"),
    Role("flappy-LGA", "flights/LGA/#", Behaviour.FLAP, policy="strict",
         about=f"stops reading for {FLAP_STALLS_S:.0f} s, again and again"),
    Role("late-US", "flights/+/US", Behaviour.ACK_LATE, qos=1,
         about=f"acknowledges {ACK_AFTER_S:.0f} s late, {RECEIVE_MAXIMUM} at a time"),
    Role("map", "flights/#", Behaviour.OVERWORKED,
         about=f"wants everything, works {SLOW_WORK_S * 1000:.0f} ms on each record"),
)  # fmt: skip
