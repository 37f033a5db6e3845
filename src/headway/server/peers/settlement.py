"""Settlement of deliveries, in steps: a client may settle a hundred thousand at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headway.core.consumer import Channel
from headway.server.connections import Steps
from headway.server.engine import Engine

PORTION = 256
"""Deliveries that are settled in one step."""
DEAR_PORTION, DEAR_WORK = 32, 1024
"""Deliveries, and about the work, of a step after one that was more work than to settle them: they go back to their
queues, or become dead letters, which very many queues may get. The first step, of one delivery, shows what they cost.
"""
Settle = Callable[[Sequence[int]], None]


def settle(engine: Engine, ids: Sequence[int], do: Settle) -> int:
    """Settles deliveries and returns the work; dead letters among them count extra."""
    overdue = engine.broker.registry.overdue
    before = overdue.left
    if ids:
        do(ids)
    return max(1, len(ids)) + before - overdue.left


def settle_in_steps(engine: Engine, channel: Channel, ids: Sequence[int], do: Settle, *, sure: bool = True) -> Steps:
    """Settles deliveries, also if the client leaves. ``sure``: they were all there; those gone meanwhile are skipped.
    """
    at, portion = 0, 1
    while at < len(ids):
        some = ids[at : at + portion]
        at += portion
        work = settle(engine, [one for one in some if channel.holds(one)] if sure else some, do)
        portion = PORTION if work <= portion else max(1, min(DEAR_PORTION, DEAR_WORK * portion // work))
        yield work
