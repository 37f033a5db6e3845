"""A look is a plug-in's view of one consumer, in plain values that it cannot change."""

from __future__ import annotations

import msgspec

from headway.core.policy.meters.sample import Sample


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """One look at one consumer."""

    sample: Sample
    """The sample of this look. An action also gets the values of the plugged-in meters that its policy names."""
    client: str
    filter: str
    """The topic filter, or queue, that the client subscribed to."""
    listener: str
    """The name of the listener that the client connected to."""
    protocol: str
    """The client's protocol, such as ``mqtt5`` or ``amqp``."""
    user: str
    """The name that the client logged in with; empty: none."""
    durable: bool
    """The subscription outlives its connection."""
    connected: bool
    """The client is connected."""
    policy: str
    """The name of the consumer's policy."""
    wall_s: float
    """Seconds since 1970, so that a plug-in needs no clock."""
