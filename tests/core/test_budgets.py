"""Budgets: what one step, turn or look of one client may cost the others, counted in what is touched."""

from __future__ import annotations

import pytest
from tests.core.stage import Stage

from headway.core.chunk import Chunk


def test_nothing_is_copied_beyond_what_credit_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []
    read = Chunk.read
    monkeypatch.setattr(Chunk, "read", lambda self, start, stop: copied.append(stop - start) or read(self, start, stop))
    stage = Stage()
    consumer = stage.consumer("c", "t", 1, window=3, acks=False)
    stage.client("publisher").publish("t", 0, 500, qos=1)
    stage.turn()
    assert consumer.numbers == [0, 1, 2]
    assert sum(copied) < 3 * 150
    for count in range(4, 20):
        del copied[:]
        consumer.acknowledge()
        stage.turn()
        assert consumer.numbers == list(range(count))
        assert sum(copied) < 150, "one record"
        del copied[:]
        stage.broker.fanout.again[consumer.session] = None
        stage.turn()
        assert not copied, "nothing, without credit"
