"""Clients that have left take turns with what they still publish to very many lanes, as all others do. Here three lanes
are very many, and each turn reaches one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from bench.wires.packets import encode_publish, encode_subscribe
from pamqp.commands import Tx
from tests.server.amqp_stage import Client, House, method
from tests.server.test_unfinished import amqp1, mqtt, openwire, openwire_transaction, plain, stomp, transaction_id
from tests.wire import openwire_frames as frames

from headway.core.base import Reason
from headway.core.log import Lane
from headway.core.routing import publishing as appending
from headway.core.routing.matching import router
from headway.server.amqp1.peer import Amqp1Peer
from headway.server.connections import Connection
from headway.server.engine import engine
from headway.wire.amqp1 import values as writing
from headway.wire.amqp1.performatives import Attach, Coordinator, Source, Target
from headway.wire.amqp1.replies import write
from headway.wire.mqtt.packets import TopicRequest
from headway.wire.openwire.codes import Type

FILTERS = ["w/#", "+/+", "+/#", "w/+", "#", "w/+/#", "+/+/#"]
RECORDS, CLIENTS = 4, 3


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> House:
    monkeypatch.setattr(router, "WIDE_WORK", 2)
    monkeypatch.setattr(appending, "LANE_WORK", 2000)
    house = House()
    reader = mqtt(house, "reader")
    reader.say(encode_subscribe(1, [TopicRequest(filter, 0) for filter in FILTERS], version=4))
    return house


def begin(house: House) -> None:
    """The turn in which the last bytes are read."""
    reads = house.pretended.reads
    while house.pretended.reads == reads:
        assert house.pretended.once()


def of_stomp(house: House, number: int) -> None:
    one = stomp(house)
    one.say(b"BEGIN\ntransaction:t\n\n\0")
    for at in range(RECORDS):
        one.say(b"SEND\ndestination:/topic/w.%d\ntransaction:t\n\nx\0" % at)
    one.send(b"COMMIT\ntransaction:t\n\n\0")
    begin(house)
    one.connection.close(Reason.CLIENT_GONE)


def of_openwire(house: House, number: int) -> None:
    one = openwire(house, f"c{number}")
    one.say(openwire_transaction(0))
    for at in range(RECORDS):
        topic = frames.topic(f"w.{at}")
        one.say(frames.message(Type.BYTES_MESSAGE, topic, b"x", transaction=transaction_id()))
    one.send(openwire_transaction(2))
    begin(house)
    one.connection.close(Reason.CLIENT_GONE)


def of_amqp1(house: House, number: int) -> None:
    one = amqp1(house, f"c{number}")
    one.say(write(0, Attach("tx", 40, False, source=Source(), target=Coordinator(), initial_delivery_count=0)))
    one.say(plain(40, 0, writing.described(0x77, writing.described(0x31, writing.list_of([])))))
    peer = one.connection.peer_side
    assert isinstance(peer, Amqp1Peer)
    [txn_id] = peer.transactions
    for at in range(RECORDS):
        target = Target(f"topic://w.{at}")
        one.say(write(0, Attach(f"w{at}", 50 + at, False, source=Source(), target=target, initial_delivery_count=0)))
        one.say(plain(50 + at, 1 + at, writing.described(0x75, writing.binary(b"x")), peer))
    discharge = writing.list_of([writing.binary(txn_id), writing.boolean(False)])
    one.send(plain(40, 2, writing.described(0x77, writing.described(0x32, discharge))))
    begin(house)
    one.connection.close(Reason.CLIENT_GONE)


def of_amqp(house: House, number: int) -> None:
    one = Client(house)
    one.say(Tx.Select())
    for at in range(RECORDS):
        one.put(f"w.{at}", b"x", exchange="amq.topic")
    one.sock.incoming.append(method(1, Tx.Commit()))
    begin(house)
    one.connection.close(Reason.CLIENT_GONE)


def of_mqtt(house: House, number: int) -> None:
    """Without a commit. What it has sent is read before its end is seen."""
    one = mqtt(house, f"c{number}")
    one.send(b"".join(encode_publish(f"w/{at}", b"x", version=4) for at in range(RECORDS)))
    begin(house)
    one.send(b"")


@pytest.mark.parametrize("leaves", [of_stomp, of_openwire, of_amqp1, of_amqp, of_mqtt])
def test_what_is_published_without_its_client_takes_turns(
    house: House, monkeypatch: pytest.MonkeyPatch, leaves: Callable[[House, int], None]
) -> None:
    others: list[int] = []
    spread = appending.Appending.spread

    def noted(self: appending.Appending, *args: object) -> None:
        others.append(len(house.broker.registry.backpressure.wide.coming))
        spread(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(appending.Appending, "spread", noted)
    for number in range(CLIENTS):
        leaves(house, number)
    house.pass_time(1.0)
    assert others == [0] * RECORDS * CLIENTS
    assert not house.broker.registry.deferred
    lanes: list[Lane] = [feed.lane for feed in house.broker.registry.router.route("w/0").feeds]
    assert len(lanes) == len(FILTERS)
    assert {lane.count for lane in lanes} == {RECORDS * CLIENTS}


def test_of_very_many_that_wait_some_are_asked_in_a_turn(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Counter[int]()
    go_on = Connection.go_on

    def counted(self: Connection) -> None:
        asked[house.turns] += 1
        go_on(self)

    monkeypatch.setattr(Connection, "go_on", counted)
    monkeypatch.setattr(engine, "WAITING_ASKED", 2)
    clients = [mqtt(house, f"c{number}") for number in range(20)]
    for one in clients:
        one.send(b"".join(encode_publish(f"w/{at}", b"x", version=4) for at in range(RECORDS)))
    house.pretended.once()
    for one in clients:
        one.send(b"")
        one.connection.look_ahead()  # as the broker does now and then with those that it holds back
    while not asked:
        assert house.pretended.once()
    asked.clear()  # the first time each of them is
    house.run()
    assert max(asked.values()) <= 4
    assert house.broker.registry.totals.published_records == RECORDS * len(clients)
    assert not house._waiting
