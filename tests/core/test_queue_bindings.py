"""Queues that share a lane, and bindings that come and go."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.core.queue_wire import run_of
from tests.core.queues_stage import Peer, QueueStage, drained, reader
from tests.core.refusals import refused
from tests.sim.tape import NothingRecorded

from headway.core.base.errors import Reason
from headway.core.clients.queues import REPLAYS_MAX
from headway.core.consumer.request import SubscriptionOptions
from headway.core.message.record import SCAN_MAX, Run
from headway.core.routing.matching.bindings import Binding, Destination


@pytest.fixture
def stage() -> QueueStage:
    return QueueStage()


@pytest.fixture
def peer(stage: QueueStage) -> Peer:
    return stage.peer("peer")


# -- one lane for all -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queues", [2, 100])
def test_queues_bound_alike_share_one_lane_and_a_record_is_held_once(stage: QueueStage, peer: Peer, queues: int
                                                                     ) -> None:
    for number in range(queues):
        peer.declare(f"q{number}")
        peer.bind(f"q{number}", "amq.topic", "a.#")
        peer.bind(f"q{number}", "amq.direct", "k")
    assert len(stage.lanes) == 1
    peer.publish("a.b", 0, 10, exchange="amq.topic", size=1000)
    published = peer.publish("k", 10, 10, exchange="amq.direct", size=1000)
    stage.turn()
    assert published is not None
    assert published.taken == 1
    assert 20_000 < stage.pool.memory_bytes < 23_000
    first = reader(stage, "q0")
    stage.turn()
    assert first.numbers == list(range(20))
    assert stage.pool.memory_bytes > 20_000, "for the others"
    others = [reader(stage, f"q{number}") for number in range(1, queues)]
    stage.turn()
    assert all(other.numbers == list(range(20)) for other in others)
    assert stage.pool.memory_bytes == 0


@pytest.mark.parametrize(
    ("source", "looks_at_key", "looks_at_arguments"),
    [("amq.fanout", False, False), ("amq.headers", False, True), ("amq.direct", True, False),
     ("amq.topic", True, False)],
)  # fmt: skip
def test_what_an_exchange_does_not_look_at_keeps_nobody_apart(
    stage: QueueStage, peer: Peer, source: str, looks_at_key: bool, looks_at_arguments: bool
) -> None:
    for number in range(50):
        peer.declare(f"q{number}")
        peer.bind(f"q{number}", source, f"key{number}")
    assert len(stage.lanes) == (50 if looks_at_key else 1)
    for number in range(50):
        peer.unbind(f"q{number}", source, f"key{number}")
        peer.bind(f"q{number}", source, "key", number=number)
    assert len(stage.lanes) == (50 if looks_at_arguments else 1)


def test_a_binding_ends_by_the_very_key_and_arguments_it_was_made_with(stage: QueueStage, peer: Peer) -> None:
    for name in ("q", "r"):
        peer.declare(name)
        peer.bind(name, "amq.fanout", name)
    peer.bind("q", "amq.fanout", "other", a=1)
    assert len(stage.lanes) == 1
    peer.unbind("q", "amq.fanout", "")
    peer.unbind("q", "amq.fanout", "r")
    peer.unbind("q", "amq.fanout", "other")
    peer.publish("x", 0, exchange="amq.fanout")
    peer.unbind("q", "amq.fanout", "q")
    peer.publish("x", 1, exchange="amq.fanout")
    peer.unbind("q", "amq.fanout", "other", a=1)
    peer.publish("x", 2, exchange="amq.fanout")
    assert (drained(stage, "q"), drained(stage, "r")) == ([0, 1], [0, 1, 2])


def test_a_queue_gets_a_record_once_though_two_bindings_match(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q")
    peer.exchange("e", "fanout")
    peer.chain("amq.topic", "e", "a.*")
    for source, key in (("amq.topic", "a.#"), ("amq.topic", "#.b"), ("e", "")):
        peer.bind("q", source, key)
    assert peer.publish("a.b", 0, exchange="amq.topic").taken == 1  # type: ignore[union-attr]
    assert drained(stage, "q") == [0]


def test_a_lane_stays_as_long_as_one_queue_reads_it(stage: QueueStage, peer: Peer) -> None:
    for name in ("q", "r"):
        peer.declare(name)
        peer.bind(name, "amq.fanout")
    assert len(stage.lanes) == 1
    peer.publish("", 0, 3, exchange="amq.fanout")
    peer.delete("q")
    stage.turn()
    assert drained(stage, "r") == [0, 1, 2]
    peer.delete("r")
    assert stage.lanes == []


def test_a_refusing_queue_has_a_lane_of_its_own(stage: QueueStage, peer: Peer) -> None:
    peer.declare("plain")
    peer.declare("refusing", refuses=True, records_max=3)
    for name in ("plain", "refusing"):
        peer.bind(name, "amq.fanout")
    assert len(stage.lanes) == 2


def test_names_that_look_like_others_do_not_share(stage: QueueStage, peer: Peer) -> None:
    """What a lane is called by is made of names that clients choose."""
    peer.declare("two")
    peer.bind("two", "amq.direct", "a")
    peer.bind("two", "amq.direct", "b")
    peer.declare("odd")
    peer.bind("odd", "amq.direct", "a, $exchange.amq/direct.b")
    peer.declare("by headers")
    peer.bind("by headers", "amq.headers", "k", x=1)
    peer.declare("by nothing")
    peer.bind("by nothing", "amq.headers", "k (x=1)")
    peer.publish("a", 0, exchange="amq.direct")
    peer.publish("b", 1, exchange="amq.direct")
    peer.publish("k", 2, exchange="amq.headers", x=2)
    assert drained(stage, "two") == [0, 1]
    assert drained(stage, "odd") == []
    assert drained(stage, "by headers") == []
    assert drained(stage, "by nothing") == [2]


# -- bindings that change -------------------------------------------------------------------------------------------


def test_what_waits_stays_in_order_when_bindings_change(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q")
    sent = 0
    expected = []
    for round in range(12):
        peer.bind("q", "amq.direct", f"k{round % 4}")
        if round >= 4:
            peer.unbind("q", "amq.direct", f"k{(round + 2) % 4}")
        bound = {b.key for b in stage.broker.registry.router.exchanges.leading_to.get(Destination("queue", "q"), ())}
        for key in ("k0", "k1", "k2", "k3"):
            peer.publish(key, sent, 2, exchange="amq.direct")
            expected += [sent, sent + 1] if key in bound else []
            sent += 2
    assert stage.queue("q").backlog.lag_records == len(expected)
    one = stage.peer("one")
    one.consume("q", 3)
    stage.turn()
    assert one.numbers == expected
    assert not one.again
    assert len(stage.lanes) == 1, "lanes it has left are let go of"
    assert stage.pool.memory_bytes == 0


def test_a_lane_that_was_left_stays_until_all_of_it_is_settled(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q")
    peer.bind("q", "amq.direct", "a")
    one = stage.peer("one")
    one.consume("q", 3, acks=False)
    peer.publish("a", 0, 5, exchange="amq.direct")
    stage.turn()
    assert one.numbers == [0, 1, 2]
    peer.bind("q", "amq.direct", "b")
    peer.publish("b", 5, 3, exchange="amq.direct")
    stage.turn()
    assert len(stage.lanes) == 2
    one.nack(one.id_of(1), requeue=True)
    stage.turn()
    assert one.numbers == [0, 1, 2, 1]
    one.ack_upto(0)
    stage.turn()
    assert one.numbers == [0, 1, 2, 1, 3, 4, 5]
    assert len(stage.lanes) == 2, "3 and 4 may come back"
    one.nack(one.id_of(3), one.id_of(5), requeue=True)
    one.ack(one.id_of(4))
    one.acks[1, "q"] = True
    stage.turn()
    assert one.numbers == [0, 1, 2, 1, 3, 4, 5, 3, 5, 6, 7]
    assert one.again == [1, 3, 5]
    assert len(stage.lanes) == 1
    assert stage.pool.memory_bytes == 0


def test_back_to_a_lane_that_was_left_and_is_still_read(stage: QueueStage, peer: Peer) -> None:
    """To and fro between two lanes, one of which others read all the time."""
    for name in ("q", "other"):
        peer.declare(name)
        peer.bind(name, "amq.direct", "a")
    consumer = reader(stage, "other")
    expected = []
    for number in range(0, 40, 4):
        peer.publish("a", number, exchange="amq.direct")
        peer.bind("q", "amq.direct", "b")
        peer.publish("a", number + 1, exchange="amq.direct")
        peer.publish("b", number + 2, exchange="amq.direct")
        peer.unbind("q", "amq.direct", "b")
        peer.publish("b", number + 3, exchange="amq.direct")
        expected += [number, number + 1, number + 2]
        stage.turn()
    assert consumer.numbers == [number for number in expected if number % 4 < 2]
    one = stage.peer("one")
    one.consume("q", 2)
    stage.turn()
    assert one.numbers == expected
    assert len(stage.lanes) == 1
    assert stage.pool.memory_bytes == 0


def test_the_others_of_a_lane_let_go_of_it_when_the_last_who_needs_it_is_deleted(stage: QueueStage, peer: Peer
                                                                                 ) -> None:
    for name in ("stays", "goes"):
        peer.declare(name)
        peer.bind(name, "amq.direct", "a")
    reader(stage, "stays")
    peer.publish("a", 0, 5, exchange="amq.direct")
    stage.turn()
    assert stage.pool.memory_bytes
    assert peer.delete("goes") == 5
    stage.turn()
    assert stage.pool.memory_bytes == 0


def test_the_others_of_a_lane_that_was_left_let_go_of_it_too(stage: QueueStage, peer: Peer) -> None:
    """Whoever reads the rest of a lane last may be one who has left it."""
    for name in ("stays", "leaves"):
        peer.declare(name)
        peer.bind(name, "amq.direct", "a")
    reader(stage, "stays")
    peer.publish("a", 0, 5, exchange="amq.direct")
    peer.bind("leaves", "amq.direct", "b")
    stage.turn()
    assert stage.pool.memory_bytes
    late = reader(stage, "leaves")
    stage.turn()
    assert late.numbers == [0, 1, 2, 3, 4]
    assert stage.pool.memory_bytes == 0


def test_what_others_go_on_getting_is_not_dropped_with_what_waits(stage: QueueStage, peer: Peer) -> None:
    """Where a queue left a lane that ends, though the lane goes on in the same chunk."""
    for name in ("leaves", "stays"):
        peer.declare(name)
        peer.bind(name, "amq.direct", "a")
    peer.publish("a", 0, 3, exchange="amq.direct")
    peer.bind("leaves", "amq.direct", "b")
    peer.unbind("leaves", "amq.direct", "a")
    peer.publish("a", 3, 5, exchange="amq.direct")
    peer.publish("b", 8, 2, exchange="amq.direct")
    assert stage.queue("leaves").drops.drop(4, Reason.DISCARDED) == 4
    assert drained(stage, "leaves") == [9]
    assert stage.counts("leaves") == {"discarded": 4}
    assert drained(stage, "stays") == list(range(8))
    stage.turn()
    assert stage.pool.memory_bytes == 0


def test_a_deleted_exchange_and_one_that_ends_with_its_last_binding(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q")
    peer.exchange("deleted", "fanout")
    peer.exchange("temporary", "fanout", auto_delete=True)
    peer.bind("q", "deleted")
    peer.bind("q", "temporary")
    peer.publish("", 0, exchange="deleted")
    peer.publish("", 1, exchange="temporary")
    list(stage.broker.queues.delete_exchange("deleted", if_unused=False))
    peer.publish("", 2, exchange="temporary")
    assert peer.publish("", 3, exchange="deleted").taken == 0  # type: ignore[union-attr]
    peer.unbind("q", "temporary")
    assert peer.publish("", 4, exchange="temporary").taken == 0  # type: ignore[union-attr]
    with refused(Reason.NOT_FOUND):
        stage.broker.queues.exchange("temporary")
    peer.publish("q", 5)
    assert drained(stage, "q") == [0, 1, 2, 5]
    stage.turn()
    assert len(stage.lanes) == 1


def test_unbinding_what_is_not_bound_changes_nothing(stage: QueueStage, peer: Peer) -> None:
    peer.declare("q")
    peer.bind("q", "amq.direct", "a")
    peer.unbind("q", "amq.direct", "b")
    peer.unbind("q", "no such exchange", "b")
    peer.unbind("no such queue", "amq.direct", "a")
    peer.publish("a", 0, exchange="amq.direct")
    assert drained(stage, "q") == [0]


# -- replays ----------------------------------------------------------------------------------------------------------


class Recorded(NothingRecorded):
    """An archive with one record."""

    def earliest(self, filter: str) -> int | None:
        return 1

    def runs(self, filter: str, after: int, upto: int) -> Iterator[tuple[Run, int, float]]:
        return iter([(run_of("a", [b"0 old"]), 1, 0.0)])


def test_a_queue_that_nobody_reads_gets_only_so_many_replays(stage: QueueStage, peer: Peer) -> None:
    stage.broker.registry.archive = Recorded()
    peer.publish("nowhere", 0)
    queue = peer.declare("q")
    binding = Binding("amq.topic", Destination("queue", "q"), "a")

    def bind() -> None:
        stage.broker.queues.bind(peer.session, binding, stage.now, options=SubscriptionOptions(start="earliest"))

    for _ in range(REPLAYS_MAX):
        bind()
    with refused(Reason.PRECONDITION_FAILED, "64 replays already"):
        bind()
    assert len(queue.backlog.cursors) <= REPLAYS_MAX + 1
    assert drained(stage, "q") == [0] * REPLAYS_MAX
    bind()


class Sparse(Recorded):
    """An archive with one record of "a", behind very many of other topics."""

    def runs(self, filter: str, after: int, upto: int) -> Iterator[tuple[Run, int, float]]:
        other = run_of("b", [b"9 other"])
        for offset in range(1, 30 * SCAN_MAX):
            yield other, offset, 0.0
        yield run_of("a", [b"0 old"]), 30 * SCAN_MAX, 0.0


def test_a_replay_goes_on_though_a_step_of_it_finds_nothing_and_nothing_else_waits(
    stage: QueueStage, peer: Peer
) -> None:
    stage.broker.registry.archive = Sparse()
    peer.publish("nowhere", 0, 30 * SCAN_MAX)
    peer.declare("q")
    peer.consume("q")
    binding = Binding("amq.topic", Destination("queue", "q"), "a")
    stage.broker.queues.bind(peer.session, binding, stage.now, options=SubscriptionOptions(start="earliest"))
    stage.turn()
    assert peer.numbers == [0]
