"""What the journal has leaves memory and is read from there, byte for byte as it was (row A8)."""

from __future__ import annotations

import pytest
from tests.server.journal_stage import JournalStage, Publisher

from headway.core.consumer.effects import Spill
from headway.core.log.lanes.chunk import Chunk

RECORDS, BYTES = 2000, 5000


def full() -> tuple[JournalStage, list[Chunk]]:
    """A durable queue nobody consumes, with more in it than its pool has memory for; chunks that are to leave."""
    stage = JournalStage()
    stage.declare("q")
    publisher = Publisher(stage)
    leaving: list[Chunk] = []
    for number in range(RECORDS):
        publisher.publish("q", number, size=BYTES + number % 7)
        stage.turn()
        if number % 100 == 99:
            stage.broker.relieve(stage.now)
            leaving += _let_go(stage)
    assert publisher.told == list(range(RECORDS))
    return stage, leaving


def _let_go(stage: JournalStage) -> list[Chunk]:
    """As the engine does it."""
    gone = []
    for effect in stage.broker.take_effects():
        if isinstance(effect, Spill):
            for chunk in effect.chunks:
                handle = stage.journal.chunk(effect.lane, chunk)
                assert handle is not None, "all of it is in the journal: nothing is written once more"
                before = bytes(chunk.data)
                stage.broker.spilled(effect.lane, chunk, chunk.size, handle, "", stage.now)
                assert chunk.read(0, chunk.size) == before
                gone.append(chunk)
    return gone


def test_memory_is_let_go_of_and_the_journal_read_instead() -> None:
    stage, leaving = full()
    pool = stage.broker.registry.pools[""]
    assert pool.memory_bytes < pool.memory_limit < RECORDS * BYTES
    assert len(leaving) > 30
    assert stage.all_of("q") == list(range(RECORDS))


@pytest.mark.parametrize("acked", [0, 600, RECORDS - 1])
def test_what_the_journal_let_go_of_is_not_read_from_there(acked: int) -> None:
    """A segment is deleted when nobody wants it; a chunk that leaves memory later goes elsewhere."""
    stage, _ = full()
    for _ in range(acked):
        got = stage.get("q")
        assert got is not None
        stage.ack(got[1])
    for _ in range(3):
        stage.loop.pass_time(6.0)
        stage.turn()
    assert stage.all_of("q") == list(range(acked, RECORDS))
    first = stage.journal.streams["main"].first_sequence
    assert (first > 1) == (acked > 0)
