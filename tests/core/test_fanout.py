"""Fan-out: one offer for all who stand at the same place, and nobody who is stuck is visited."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import pytest
from tests.core.stage import STUCK, Socket, Stage, run_to

from headway.core.delivery import fanout
from headway.core.delivery import fanout as offer
from headway.core.log.lanes import lane


@pytest.fixture
def sends(monkeypatch: pytest.MonkeyPatch) -> list[Socket]:
    made: list[Socket] = []
    send = Socket.send

    def counted(self: Socket, views: Sequence[bytes | bytearray | memoryview], total: int) -> int:
        made.append(self)
        return send(self, views, total)

    monkeypatch.setattr(Socket, "send", counted)
    return made


def test_one_send_per_consumer_and_turn_and_none_for_the_stuck(sends: list[Socket]) -> None:
    stage = Stage()
    healthy = [stage.consumer(f"healthy {n}", "t", buffer=10**6) for n in range(5)]
    stuck = [stage.consumer(f"stuck {n}", "t", reads=STUCK, buffer=1000) for n in range(20)]
    publisher = stage.client("publisher")
    publisher.publish("t", 0, 100)
    stage.turn()
    del sends[:]
    for turn in range(1, 4):
        publisher.publish("t", turn * 100, 100)
        stage.turn()
        assert sorted(map(id, sends)) == sorted(id(client.outlet) for client in healthy), "however many records"
        del sends[:]
    assert [client.numbers for client in healthy] == [list(range(400))] * 5
    for client in stuck:
        client.reads = inf
    stage.run(1)
    assert [client.numbers for client in stuck] == [list(range(400))] * 20
    assert stage.pool.memory_bytes == 0


def test_who_has_got_the_new_records_before_the_turn_ends_is_offered_nothing(sends: list[Socket]) -> None:
    """An offer of no bytes is an empty frame in a WebSocket, which some clients take for the end of the stream."""
    stage = Stage()
    consumer = stage.consumer("c", "t", reads=STUCK, buffer=1000)
    publisher = stage.client("publisher")
    publisher.publish("t", 0, 20)
    stage.turn()
    publisher.publish("t", 20, 5)
    consumer.outlet.capacity = 10**6
    consumer.read(inf)
    del sends[:]
    stage.turn()
    assert not sends, "it was given everything when its socket had room again"
    consumer.read(inf)
    assert consumer.numbers == list(range(25))


def test_stuck_consumers_add_nothing_to_what_one_holds() -> None:
    held = []
    for count in (1, 300):
        stage = Stage()
        for number in range(count):
            stage.consumer(f"stuck {number}", "t", reads=STUCK, buffer=500)
        stage.client("publisher").publish("t", 0, 1000)
        stage.turn()
        held.append(stage.pool.memory_bytes)
    assert held[0] == held[1]


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("chunk_bytes", [250, 64 * 1024])
@pytest.mark.parametrize("pump_bytes", [300, 1024 * 1024])
def test_whoever_reads_again_gets_everything_in_order(
    qos: int, chunk_bytes: int, pump_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr(fanout, "PUMP_BYTES", pump_bytes)
    stage = Stage()
    slow = stage.consumer("slow", "t", qos, reads=STUCK, buffer=333)
    publisher = stage.client("publisher")
    for start in range(0, 200, 20):
        publisher.publish("t", start, 20, qos=start // 20 % 2)
        slow.reads = STUCK if start % 40 else 500.0
        stage.run(0.3)
    slow.reads = inf
    stage.run(1)
    assert slow.numbers == list(range(200))
    assert stage.pool.memory_bytes == 0


def test_a_client_that_catches_up_does_not_hold_up_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "PUMP_BYTES", 5_000)
    monkeypatch.setattr(lane, "CHUNK_BYTES", 1_000)
    stage = Stage()
    slow = stage.consumer("slow", "t", reads=STUCK, buffer=100)
    stage.client("publisher").publish("t", 0, 1000)
    stage.turn()
    slow.outlet.capacity = 10**9
    taken = slow.outlet.taken
    stage.broker.writable(slow.session, stage.now)
    assert 5_000 <= slow.outlet.taken - taken < 5_000 + offer.VIEWS_MAX * 1_200
    assert stage.broker.has_work, "the rest is asked for in the next turn"


def test_a_turn_sends_so_much_and_the_rest_in_turns_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "FLUSH_BYTES", 50_000)
    stage = Stage()
    many = [stage.consumer(f"one {n}", "large", buffer=10**6) for n in range(40)]
    other = stage.consumer("other", "small")
    publisher = stage.client("publisher")
    publisher.publish("large", 0, size=10_000)
    turns, most, before = 0, 0, 0
    while turns == 0 or stage.broker.has_work:
        publisher.publish("small", turns)
        stage.broker.flush(stage.now)
        turns += 1
        other.read(inf)
        assert other.numbers == list(range(turns)), "nobody else waits"
        assert not stage.broker.intake.must_wait(publisher.session, run_to("small"), stage.now)
        left = [one for one in many if not one.outlet.taken_bytes]
        held = stage.broker.intake.must_wait(publisher.session, run_to("large"), stage.now)
        assert held is bool(left), "what is published next would only wait"
        taken = sum(one.outlet.taken_bytes for one in many)
        most, before = max(most, taken - before), taken
        assert turns < 50
    assert most <= 50_000 + 11_000
    assert not publisher.paused
    stage.run(1)
    assert [one.numbers for one in many] == [[0]] * 40


def test_who_is_left_over_and_goes_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "FLUSH_BYTES", 50_000)
    stage = Stage()
    many = [stage.consumer(f"one {n}", "large", buffer=10**6) for n in range(40)]
    publisher = stage.client("publisher")
    publisher.publish("large", 0, size=10_000)
    stage.broker.flush(stage.now)
    assert stage.broker.intake.must_wait(publisher.session, run_to("large"), stage.now)
    for one in many:
        one.leave()
    stage.run(1)
    assert not stage.broker.intake.must_wait(publisher.session, run_to("large"), stage.now)
