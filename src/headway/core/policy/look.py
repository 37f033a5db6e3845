"""Looks: what a plug-in is told of one consumer, in plain values that nobody can change."""

from __future__ import annotations

import msgspec

from headway.core.policy.meter import Sample


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """One look at one consumer."""

    sample: Sample
    """What was measured of it just now. Of an action, with the values of the plugged-in meters its policy names."""
    client: str
    filter: str
    """What it subscribed to."""
    listener: str
    """Where it came in."""
    protocol: str
    """What it speaks: ``mqtt5``, ``amqp``."""
    user: str
    """The name it logged in with; empty: none."""
    durable: bool
    """It outlives its connection."""
    connected: bool
    """Its client is there."""
    policy: str
    """The policy that governs it."""
    wall_s: float
    """Seconds since 1970, so that a plug-in needs no clock."""
