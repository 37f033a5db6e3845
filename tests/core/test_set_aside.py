"""Records that were sent and are not acknowledged keep only their own chunks, whatever a policy, or another consumer,
does with what lies behind them. Measured by what the pool counts."""

from __future__ import annotations

import pytest
from tests.core.lanes import Handle, append, lane
from tests.core.queues_stage import Peer, QueueStage
from tests.core.stage import Client, Stage
from tests.core.test_moves import act

from headway.core.base.errors import Reason
from headway.core.delivery.fanout import start_conflating
from headway.core.log import Chunk, Cursor
from headway.core.log.lanes.chunk import CHUNK_BYTES

SIZE, COUNT = 20_000, 100
PENDING = """
[[policy]]
name = "pending"
topics = ["t"]
[[policy.rule]]
when = { lag_bytes = "200kB" }
then = { action = "discard", which = "oldest", keep_bytes = "100kB" }
"""


def behind(stage: Stage, qos: int, *, options: dict[str, str] | None = None, expiry_s: float = 0.0) -> Client:
    """A client with a full window of two, and 2 MB behind that."""
    client = stage.consumer("stuck", "t", qos, window=2, acks=False, options=options, expiry_s=expiry_s)
    publisher = stage.client("publisher")
    for number in range(COUNT):
        publisher.publish("t", number, size=SIZE, qos=qos)
        stage.turn()
    assert client.numbers == [0, 1]
    return client


def acknowledge_all(stage: Stage, client: Client) -> None:
    client.acks = True
    client.acknowledge(len(client.session.channel.in_flight))
    stage.run(1)


@pytest.mark.parametrize("qos", [1, 2])
def test_a_discard_frees_what_lies_behind_a_full_window(qos: int) -> None:
    stage = Stage(memory="50MB", disk="0B")
    client = behind(stage, qos)
    (subscription,) = client.session.subscriptions.values()
    assert stage.pool.memory_bytes > COUNT * SIZE
    act(stage, subscription, which="oldest", keep_records=0)
    stage.turn()
    assert stage.pool.memory_bytes <= 2 * CHUNK_BYTES, "the chunk of the two, and the last one"
    assert stage.stats(client).held_bytes == stage.pool.memory_bytes
    client.publish("t", COUNT)
    stage.turn()
    acknowledge_all(stage, client)
    assert client.numbers == [0, 1, COUNT]
    assert stage.pool.memory_bytes == 0


@pytest.mark.parametrize("qos", [1, 2])
def test_a_conflated_consumer_keeps_what_it_has_not_acknowledged(qos: int) -> None:
    stage = Stage('[[topic]]\nfilter = "t"\nkey = "topic"')
    client = behind(stage, qos, options={"snapshot": "true"})
    (subscription,) = client.session.subscriptions.values()
    start_conflating(subscription, stage.now)
    stage.turn()
    of_records = stage.pool.memory_bytes - stage.pool.state_bytes
    assert 2 * SIZE <= of_records <= 2 * CHUNK_BYTES
    for number in range(COUNT, 2 * COUNT):
        client.publish("t", number, size=SIZE)
        stage.turn()
    assert stage.pool.memory_bytes - stage.pool.state_bytes == of_records, "and it does not grow"
    acknowledge_all(stage, client)
    assert client.numbers == [0, 1, 2 * COUNT - 1]
    assert stage.pool.memory_bytes == stage.pool.state_bytes


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_limit_of_what_is_pending_limits_what_is_held(qos: int) -> None:
    stage = Stage(PENDING, memory="50MB", disk="0B")
    stage.consumer("stuck", "t", qos, window=2, acks=False, reads=float("inf") if qos else 0.0)
    publisher = stage.client("publisher")
    most = 0
    for number in range(COUNT):
        publisher.publish("t", number, size=SIZE, qos=qos)
        stage.run(0.2)
        most = max(most, stage.pool.memory_bytes)
    assert most <= 200_000 + 3 * CHUNK_BYTES


def test_records_set_aside_are_sent_again_and_end_with_the_subscription() -> None:
    stage = Stage(memory="50MB", disk="0B")
    client = behind(stage, 1, expiry_s=1000.0)
    (subscription,) = client.session.subscriptions.values()
    act(stage, subscription, which="oldest", keep_records=0)
    stage.broker.disconnect(client.session, client.outlet, "client_gone", stage.now)  # type: ignore[arg-type]
    stage.run(1)
    client.connect()
    stage.run(1)
    assert client.numbers == [0, 1, 0, 1]
    stage.broker.unsubscribe(client.session, "t", stage.now)
    stage.turn()
    assert stage.pool.memory_bytes == 0


def test_what_is_set_aside_goes_to_disk() -> None:
    stage = Stage(memory="50MB", disk="50MB")
    client = behind(stage, 1)
    (subscription,) = client.session.subscriptions.values()
    act(stage, subscription, which="oldest", keep_records=0)
    stage.turn()
    stage.pool.memory_limit = 50_000
    stage.run(2)
    assert stage.pool.disk_bytes >= 2 * SIZE
    assert stage.pool.memory_bytes < 2 * SIZE, "the last chunk"
    acknowledge_all(stage, client)
    assert stage.pool.disk_bytes == 0


def test_a_tail_that_only_keeps_what_is_set_aside_goes_to_disk() -> None:
    filled = lane()
    cursor = Cursor(filled)
    append(filled, *[1000] * 20)
    cursor.sent(0, cursor.chunk)
    cursor.catch_up()
    cursor.set_aside()
    (chunk,) = filled.spillable(1, lambda _: True)
    assert list(filled.apart) == [chunk]
    filled.check()
    filled.spilled(chunk, Handle(bytes(chunk.data)), chunk.size)
    filled.check()
    cursor.acknowledge(0)
    assert filled.pool.memory_bytes == filled.pool.disk_bytes == 0


def test_who_holds_a_chunk_apart_is_evicted_for_it() -> None:
    stage = Stage(memory="50MB", disk="0B")
    client = behind(stage, 1)
    (subscription,) = client.session.subscriptions.values()
    act(stage, subscription, which="oldest", keep_records=0)
    stage.pool.memory_limit = 40_000
    stage.run(3)
    assert not client.connected
    assert stage.pool.memory_bytes == 0


# -- queues ------------------------------------------------------------------------------------------------------------


def queue_of(stage: QueueStage, peer: Peer, *, shared: bool, **terms: object) -> None:
    """A queue ``q``; if shared, in one lane with another."""
    peer.exchange("e", "fanout")
    for name in ("q", "other") if shared else ("q",):
        peer.declare(name, **terms)
        peer.bind(name, "e")


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("limit", ["length", "discard", "purge"])
def test_a_queue_frees_what_it_drops_behind_two_deliveries(limit: str, shared: bool) -> None:
    stage = QueueStage(memory="50MB", disk="0B")
    peer = stage.peer("peer", buffer=10_000_000)
    queue_of(stage, peer, shared=shared, **({"records_max": 3} if limit == "length" else {}))
    peer.consume("q", 2, acks=False)
    if shared:
        peer.consume("other", acks=True)
    for number in range(COUNT):
        peer.publish("", number, exchange="e", size=SIZE)
        stage.turn()
    queue = stage.queue("q")
    if limit == "discard":
        queue.discards.discard(COUNT, 0, Reason.DISCARDED)
    elif limit == "purge":
        for _ in queue.purge():
            pass
    stage.turn()
    assert stage.pool.memory_bytes <= 4 * CHUNK_BYTES
    assert queue.backlog.unacknowledged == 2
    first, second = peer.ids()
    peer.ack(second)
    peer.nack(first, requeue=True)
    stage.turn()
    assert peer.of("q")[:2] == [0, 1]
    assert peer.of("q")[2] == 0, "it is first again"
    assert peer.again == [0]
    while peer.ids():
        peer.ack(*peer.ids())
        stage.turn()
    assert stage.pool.memory_bytes == 0


def test_one_stuck_member_does_not_keep_what_the_others_settle() -> None:
    """Nobody drops anything: the queue just goes on."""
    stage = QueueStage(memory="50MB", disk="0B")
    stuck, well = stage.peer("stuck"), stage.peer("well", buffer=10_000_000)
    stuck.declare("q")
    stuck.consume("q", 2, acks=False)
    for number in (0, 1):
        stuck.publish("q", number, size=SIZE)
    stage.turn()
    well.consume("q", 10)
    for number in range(2, COUNT):
        stuck.publish("q", number, size=SIZE)
        stage.turn()
    assert well.of("q") == [*range(2, COUNT)]
    assert stage.pool.memory_bytes <= 7 * CHUNK_BYTES
    stuck.leave()
    stage.run(1)
    assert well.again == [0, 1]
    assert stage.pool.memory_bytes == 0


def test_a_record_left_standing_does_not_keep_what_comes_behind_it() -> None:
    stage = QueueStage(memory="50MB", disk="0B")
    peer = stage.peer("peer", buffer=10_000_000)
    peer.declare("q")
    peer.consume("q", selector="kind = 'a'")
    peer.publish("q", 0, size=SIZE, user=(("kind", "b"),))
    for number in range(1, COUNT):
        peer.publish("q", number, size=SIZE, user=(("kind", "a"),))
        stage.turn()
    assert peer.of("q") == [*range(1, COUNT)]
    assert stage.pool.memory_bytes <= 7 * CHUNK_BYTES
    peer.consume("q", tag="all")
    stage.turn()
    assert peer.of("all") == [0]
    assert stage.pool.memory_bytes == 0


def test_a_queue_that_reads_another_lane_keeps_of_the_old_one_what_is_in_flight() -> None:
    stage = QueueStage(memory="50MB", disk="0B")
    peer = stage.peer("peer", buffer=10_000_000)
    queue_of(stage, peer, shared=True)
    peer.consume("q", 2, acks=False)
    for number in range(COUNT):
        peer.publish("", number, exchange="e", size=SIZE)
    stage.turn()
    peer.exchange("f", "fanout")
    peer.bind("q", "f")
    for name in ("q", "other"):
        for _ in stage.queue(name).purge():
            pass
    stage.turn()
    assert stage.queue("q").backlog.draining
    assert stage.pool.memory_bytes <= 2 * CHUNK_BYTES
    peer.ack(*peer.ids())
    stage.turn()
    assert not stage.queue("q").backlog.draining
    assert stage.pool.memory_bytes == 0


# -- what it costs -----------------------------------------------------------------------------------------------------


def test_a_window_is_set_aside_once_however_often_the_cursor_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    filled = lane()
    cursor, kept = Cursor(filled), []
    keep = Chunk.keep
    monkeypatch.setattr(Chunk, "keep", lambda chunk, by, count: kept.append(count) or keep(chunk, by, count))
    append(filled, *[100] * 65_535)
    while cursor.number < filled.count:
        count = len(cursor.chunk) - (cursor.number - cursor.chunk.first_number)
        cursor.sent(cursor.number, cursor.chunk, count)
        cursor.advance(100 * count)
    assert not kept, "a window in which nothing is settled frees nothing"
    for _ in range(100):
        append(filled, *[100] * 2000)
        cursor.skip_to(filled.count)
    assert sum(kept) == 65_535
    assert len(kept) == 65_535 // (CHUNK_BYTES // 100) + 1, "by chunk"
    assert filled.pool.memory_bytes <= 65_535 * 100 + 2 * CHUNK_BYTES
    filled.check()
    for number in range(65_535):
        cursor.acknowledge(number)
    assert filled.pool.memory_bytes <= CHUNK_BYTES
    filled.check()
