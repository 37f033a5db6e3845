"""Settlement of deliveries, in steps: a client may settle a hundred thousand at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headway.core.consumer import Channel
from headway.server.connections import Steps
from headway.server.engine import Engine

PORTION = 256
"""Deliveries that are settled in one step."""
Settle = Callable[[Sequence[int]], None]


def settle(engine: Engine, ids: Sequence[int], do: Settle) -> int:
    """Settles deliveries and returns the work; dead letters among them count extra."""
    overdue = engine.broker.registry.overdue
    before = overdue.left
    if ids:
        do(ids)
    return max(1, len(ids)) + before - overdue.left


def settle_in_steps(engine: Engine, channel: Channel, ids: Sequence[int], do: Settle) -> Steps:
    """Settles deliveries, also if the client leaves; those that are gone meanwhile are skipped."""
    for at in range(0, len(ids), PORTION):
        yield settle(engine, [one for one in ids[at : at + PORTION] if channel.holds(one)], do)
