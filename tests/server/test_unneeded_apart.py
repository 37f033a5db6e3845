"""Compaction keeps the records that a cursor has set aside, whenever it does so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.core.lanes import append, lane

from headway.core.log.lanes import lane as lanes
from headway.core.log.lanes.cursor import Cursor
from headway.server.journal.compaction import SequenceRange, UnneededRanges


@pytest.mark.parametrize("steps_before", range(5))
def test_records_that_are_set_aside_are_needed(monkeypatch: pytest.MonkeyPatch, steps_before: int) -> None:
    """It may happen to the chunk that was just looked at. What comes behind that is looked at all the same."""
    monkeypatch.setattr(lanes, "CHUNK_BYTES", 100)
    filled = lane()
    cursor = Cursor(filled)
    append(filled, *[50] * 10)
    cursor.advance(100)
    cursor.sent(2, cursor.chunk)
    feeds = {"one": SimpleNamespace(lane=filled)}
    broker: Any = SimpleNamespace(registry=SimpleNamespace(router=SimpleNamespace(feeds=feeds)))
    ledger: Any = SimpleNamespace(positions={})
    ranges = [SequenceRange(first, first + 1) for first in range(1, 11, 2)]
    search = UnneededRanges(broker, ledger, (), ranges)
    for _ in range(steps_before):
        search.advance(1)
    cursor.skip_to(9)
    search.advance()
    needed = {SequenceRange(3, 4), SequenceRange(9, 10)}
    assert next(iter(filled.apart)).run_sequence[0] == 3
    assert needed.isdisjoint(search.found)
    assert steps_before or set(search.found) == set(ranges) - needed
