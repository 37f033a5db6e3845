"""A snapshot that is collected over many turns says what one says that is taken at once, at its end."""

from __future__ import annotations

from collections.abc import Container

import pytest
from tests.core.queue_wire import PLAIN, run_of
from tests.sim.tape import WALL_OFFSET_S, NothingRecorded, TapeStream
from tests.sim.test_restart_churn import Churn, told

from headway.core.clients.durability import RecoveredPosition, SubscriptionTerms
from headway.core.consumer.credit import NO_LIMIT
from headway.core.consumer.request import QueueTerms, SubscribeRequest
from headway.core.log.durable import DurablePosition, OutOfOrderProgress
from headway.core.queue.queue import queue_of
from headway.core.routing.matching.bindings import Binding, Destination, Exchange
from headway.server.journal.compaction import Snapshot
from headway.server.journal.entries import (
    SNAPSHOT_METADATA,
    SNAPSHOT_POSITIONS,
    decode_metadata,
    decode_positions,
    encode_metadata,
)
from headway.store.journal.segments.batch import Entry, StoredEntry

SEEDS = range(1, 9)


class Watched(Churn):
    """Each snapshot is compared with one that is taken at once; ``turns``: those that it had before."""

    def __init__(self, seed: int, slices: int) -> None:
        super().__init__(seed)
        self.tape.slices = slices
        self.tape.seen = self.compare
        self.snapshots = self.changes = self.settled = 0

    def compare(self, snapshot: Snapshot, now: float) -> None:
        tape, sequence = self.tape, self.broker.registry.sequence
        at_once = Snapshot(self.broker, tape.ledger, NothingRecorded())
        at_once.advance()
        found = [one.entries(sequence, tape.ledger.reserved)[1:] for one in (snapshot, at_once)]
        slowly, fast = (changes_in(entries, tape.ledger.positions) for entries in found)
        assert {of: data for of, data in slowly.items() if of[0] != "flight"} == {
            of: data for of, data in fast.items() if of[0] != "flight"}  # fmt: skip
        assert all(slowly.get(of) == data for of, data in fast.items()), "others are over, which does no harm"
        slow, quick = map(positions_in, found)
        for number, position in tape.ledger.positions.items():
            self.settled += self._same(position, slow.get(number), quick[number], tape.began[number])
        self.snapshots += 1
        self.changes += len(fast)
        self._alone(found[0], now)

    def _same(
        self, position: DurablePosition, slow: RecoveredPosition | None, quick: RecoveredPosition, began: int
    ) -> int:
        if slow is None:  # it is new, and has not told of anything
            return 0
        is_settled, settled = (
            lambda one, found=found: one < found.upto or found.covers(one) for found in (slow, quick)
        )  # type: ignore[misc]
        written = [one for one in self.tape.written if one > began]
        assert not [one for one in written if is_settled(one) and not settled(one)], "it would be lost"
        there = set(in_lanes(position)).intersection(written)
        assert not [one for one in there if settled(one) and not is_settled(one)], "it would come again"
        assert slow.conflated == quick.conflated
        return sum(settled(one) for one in there)

    def _alone(self, entries: list[Entry], now: float) -> None:
        """Nothing else is needed."""
        stream, whole = TapeStream(), self.tape.main
        stream.write(entries, now)
        self.tape.main = stream
        again, ledger = self.tape.restored(now)
        self.tape.main = whole
        assert told(ledger) == told(self.tape.ledger)
        assert sorted(ledger.positions) == sorted(self.tape.ledger.positions)
        durable = {name for name, one in self.broker.registry.sessions.items() if one.durable}
        assert set(again.registry.sessions) == durable


def changes_in(entries: list[Entry], known: Container[int]) -> dict[tuple[str, object], bytes]:
    """Of members of a group that acknowledge nothing, no entry says that the group has a position, or has none now."""
    found = {}
    for kind, sequence, count, (data,) in entries:
        if kind == SNAPSHOT_METADATA:
            change = decode_metadata(StoredEntry(kind, sequence, count, bytes(data)), WALL_OFFSET_S)
            terms = change.terms
            if isinstance(terms, SubscriptionTerms) and (terms.position_number not in known or not terms.request.qos):
                change = change._replace(terms=terms._replace(position_number=0))
            found[change.what, change.name] = bytes(encode_metadata(change, WALL_OFFSET_S).data[0])
    return found


def positions_in(entries: list[Entry]) -> dict[int, RecoveredPosition]:
    kind, sequence, count, (data,) = entries[-1]
    assert kind == SNAPSHOT_POSITIONS
    positions = decode_positions(StoredEntry(kind, sequence, count, bytes(data)))
    found = {position.number: RecoveredPosition(position) for position in positions}
    for recovered in found.values():
        recovered.close()
    return found


def in_lanes(position: DurablePosition) -> list[int]:
    found = []
    for cursor in position.cursors:
        if not isinstance(cursor, OutOfOrderProgress):
            for chunk in cursor.lane.all_chunks():  # type: ignore[attr-defined]
                found += [chunk.sequence_of(index) for index in range(len(chunk))]
    return found


@pytest.mark.parametrize("slices", [1, 4])
@pytest.mark.parametrize("seed", SEEDS)
def test_it_is_as_of_its_end(seed: int, slices: int) -> None:
    world = Watched(seed, slices)
    world.run(600)
    assert world.snapshots > 3
    assert world.tape.sliced > 3
    assert world.changes > 20


def settled_after(world: Churn, snapshot: Snapshot) -> bool:
    """One record is settled behind another that is not, while the snapshot is collected: whether it says so."""
    tape = world.tape
    queue = queue_of(world.broker.registry.router.queues["q1"])
    assert queue.durable_position.durable
    snapshot.advance()
    request = SubscribeRequest("$queue/q1", PLAIN, qos=1, polling=True, name=(1, "get", "q1"))
    got = [world.broker.queues.get(world.operator, world.channel, queue, request, NO_LIMIT, world.now) for _ in "ab"]
    assert got[1] is not None
    world.broker.queues.acknowledge(world.channel, [got[1].delivery_id])
    commit = tape.ledger.take(world.broker.registry.sequence, 0.0)
    assert commit is not None
    snapshot.on_commit([(one, encode_metadata(one, WALL_OFFSET_S)) for one in commit.changes], commit.positions)
    recovered = positions_in(snapshot.entries(world.broker.registry.sequence, 0))[queue.durable_position.number]
    first, second = sorted(tape.written)
    assert not recovered.covers(first)
    return recovered.covers(second)


def test_what_is_settled_after_a_position_was_looked_at_is_in_it() -> None:
    world = Churn(0)
    world.broker.queues.declare(world.operator, "q1", QueueTerms(durable=True), PLAIN, world.now)
    world.broker.intake.publish_to(None, run_of("q1", [b"a", b"b"]), world.now)
    world.tape.take(world.now)
    assert settled_after(world, Snapshot(world.broker, world.tape.ledger, NothingRecorded()))


def test_an_exchange_that_goes_with_its_last_binding_is_not_in_it() -> None:
    world = Churn(0)
    queues, ledger = world.broker.queues, world.tape.ledger
    queues.declare(world.operator, "q1", QueueTerms(durable=True), PLAIN, world.now)
    queues.declare_exchange(Exchange("e1", "fanout", durable=True, auto_delete=True))
    queues.bind(world.operator, Binding("e1", Destination("queue", "q1"), ""), world.now)
    world.tape.take(world.now)
    snapshot = Snapshot(world.broker, ledger, NothingRecorded())
    snapshot.advance()
    queues.delete(queues.queue(world.operator, "q1"), world.now)
    commit = ledger.take(0, 0.0)
    assert commit is not None
    snapshot.on_commit([(one, encode_metadata(one, WALL_OFFSET_S)) for one in commit.changes], commit.positions)
    found = changes_in(snapshot.entries(1, 0), ())
    assert not [of for of in found if of[0] in ("exchange", "binding", "queue")]
