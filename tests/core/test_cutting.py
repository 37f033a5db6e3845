"""Many stuck consumers cut at once: what it costs the others, in memory and in turns."""

from __future__ import annotations

import pytest
from tests.core.stage import STUCK, Client, Stage

from headway.core.base.errors import Reason
from headway.core.consumer.effects import Disconnect
from headway.core.governance.moves import CUTS_MAX

RECORD_BYTES = 300_000
STUCK_30_S = """
[pool]
memory = "64MB"
disk = "64MB"

[[policy]]
name = "all"
topics = ["#"]

[[policy.rule]]
when = { blocked_time = "5s" }
then = "disconnect"
"""


def crowd(stage: Stage, count: int) -> list[Client]:
    """All of them have half of the same large record."""
    clients = [stage.consumer(f"stuck {number}", "t", reads=STUCK, buffer=5000) for number in range(count)]
    stage.client("publisher").publish("t", 0, 1, size=RECORD_BYTES)
    stage.turn()
    assert all(client.session.half_sent is not None for client in clients), "the story needs records half sent"
    return clients


def test_those_who_have_half_of_the_same_record_share_the_rest_of_it() -> None:
    stage = Stage(STUCK_30_S)
    clients = crowd(stage, 3)
    for client in clients:
        stage.broker.governor.cutter.disconnect(client.session, Reason.BLOCKED, "for the story", stage.now)
    rests = [effect.rest for effect in stage.broker.take_effects() if isinstance(effect, Disconnect)]
    assert [len(rest) > RECORD_BYTES - 5000 for rest in rests if rest is not None] == [True] * 3
    memory = {id(rest.obj) for rest in rests if isinstance(rest, memoryview)}
    assert len(memory) == 1, "a copy for each of them would be what a broker with a buffer per client has"


@pytest.mark.parametrize(
    "then", ['"disconnect"', '"delete_subscription"', '{ action = "close_consumer", within = "5s" }']
)
def test_cutting_a_thousand_takes_several_turns(then: str) -> None:
    stage = Stage(STUCK_30_S.replace('"disconnect"', then))
    count = 5 * CUTS_MAX // 2
    clients = crowd(stage, count)
    in_a_turn = []
    take = stage.broker.take_effects

    def counted() -> list[object]:
        effects = take()
        in_a_turn.append(sum(isinstance(effect, Disconnect) for effect in effects))
        return effects

    stage.broker.take_effects = counted  # type: ignore[method-assign, assignment]
    stage.run(20)
    assert not any(client.connected for client in clients)
    assert sum(in_a_turn) == count
    assert max(in_a_turn) <= CUTS_MAX
    assert {client.goodbye.reason for client in clients if client.goodbye} != {None}


@pytest.mark.parametrize("disk", ["0B", "400KB"])
def test_nor_does_a_pool_that_is_full_cut_all_at_once(disk: str) -> None:
    """What is on disk is not read back a thousand times for it: those have no last word."""
    stage = Stage(memory="400KB", disk=disk)
    count = 2 * CUTS_MAX
    clients = crowd(stage, count)
    publisher = stage.client("another publisher")
    most = 0
    take = stage.broker.take_effects

    def counted() -> list[object]:
        nonlocal most
        effects = take()
        most = max(most, sum(isinstance(effect, Disconnect) for effect in effects))
        return effects

    stage.broker.take_effects = counted  # type: ignore[method-assign, assignment]
    for turn in range(20):
        publisher.publish("t", turn, 1, size=100_000)
        stage.run(0.5)
    assert not any(client.connected for client in clients)
    assert 0 < most <= CUTS_MAX
    assert all(stage.broker.verdicts.last(client.name) for client in clients)
    assert all((client.goodbye is None) == (disk != "0B") for client in clients)


@pytest.mark.parametrize("disk", ["64MB", "0B"])
def test_at_least_once_too_a_large_record_is_shared(disk: str) -> None:
    """Only what stands in front of it, with the delivery id, is each one's own."""
    stage = Stage(memory="64MB", disk=disk)
    clients = [stage.consumer(f"stuck {number}", "t", 1, reads=STUCK, buffer=5000) for number in range(3)]
    slow = stage.consumer("slow", "t", 1, reads=100_000.0, buffer=5000)
    publisher = stage.client("publisher")
    publisher.publish("t", 0, 1, size=RECORD_BYTES, qos=1)
    publisher.publish("t", 1, 3, size=100, qos=1)
    stage.run(0.2)
    for client in clients:
        assert len(client.outlet.out) + len(client.session.rest) < 1000, "a copy for it alone"
        assert len(client.session.channel.in_flight) == 1
    assert stage.pool.clients_bytes < RECORD_BYTES
    stage.run(6)
    assert slow.numbers == [0, 1, 2, 3]
    assert not slow.session.channel.in_flight
    clients[0].reads = 1e6
    stage.run(3)
    assert clients[0].numbers == [0, 1, 2, 3]


@pytest.mark.parametrize("how", ["vanishes", "is cut"])
def test_who_comes_back_has_it_once_more_and_once_only(how: str) -> None:
    stage = Stage(memory="64MB", disk="64MB")
    client = stage.consumer("durable", "t", 1, reads=STUCK, buffer=5000, expiry_s=3600.0)
    stage.client("publisher").publish("t", 0, 1, size=RECORD_BYTES, qos=1)
    stage.client("another").publish("t", 1, 2, qos=1)
    stage.run(0.2)
    assert client.session.half_sent is not None
    if how == "vanishes":
        client.leave()
    else:
        stage.broker.governor.cutter.disconnect(client.session, Reason.BLOCKED, "for the story", stage.now)
        stage.turn()
    client.reads = 1e6
    client.seen.clear()
    stage.run(1)
    client.connect()
    assert client.session.present
    stage.run(5)
    assert client.numbers == [0, 1, 2]
    assert not client.session.channel.in_flight
