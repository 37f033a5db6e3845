"""A client that goes on asking while the journal owes it an answer: the disk is full, or slow."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack

import pytest
from bench.wires.packets import connect, encode_publish
from pamqp.commands import Queue
from tests.server import test_amqp1_greedy as amqp1
from tests.server import test_openwire_greedy as openwire
from tests.server import test_stomp_greedy as stomp
from tests.server.amqp_stage import Client, House
from tests.server.greedy_stage import Greedy
from tests.server.test_amqp_pending_declares import Journal
from tests.wire import openwire_frames as frames

from headway.core.base import Reason
from headway.server.connections import OUT_BYTES_MAX
from headway.server.mqtt.peer import MqttPeer
from headway.wire.amqp1.performatives import Attach, Coordinator, Source
from headway.wire.amqp1.replies import write

TURN_BYTES = 256 * 1024
"""What was read when the limit was reached, and the replies to that."""
READ_BYTES = 64 * 1024
SAID = 40_000


@pytest.fixture
def house() -> House:
    return House('[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n')


@pytest.fixture
def journal(house: House) -> Journal:
    return Journal(house)


def of_mqtt(house: House) -> tuple[Greedy, bytes]:
    publishes = [encode_publish("n/x", b"x", qos=1, packet_id=at) for at in range(1, SAID + 1)]
    return Greedy(house, MqttPeer, connect("greedy")), b"".join(publishes)


def of_stomp(house: House) -> tuple[Greedy, bytes]:
    begins = b"BEGIN\ntransaction:a\nreceipt:r\n\n\0ABORT\ntransaction:a\nreceipt:s\n\n\0"
    return stomp.client(house), begins * (SAID // 2)


def of_openwire(house: House) -> tuple[Greedy, bytes]:
    session = frames.YES + b"\x79" + frames.text("ID:c") + pack(">q", 1)
    return openwire.client(house), b"".join(frames.frame(4, session, number=at) for at in range(SAID))


def of_amqp1(house: House) -> tuple[Greedy, bytes]:
    greedy = amqp1.client(house)
    greedy.say(write(0, Attach("c", 0, False, source=Source(), target=Coordinator(), initial_delivery_count=0)))
    return greedy, b"".join(amqp1.transfer(0, at, b"no transaction") for at in range(SAID))


def owed(house: House, journal: Journal, made: Maker) -> tuple[Greedy, Callable[[], int]]:
    """A client that is owed an answer and has asked for much more, and how many bytes are counted for that."""
    greedy, many = made(house)
    journal.write()
    before = house.broker.registry.pools[""].clients_bytes
    Client(house).say(Queue.Declare(queue="q", durable=True))  # the journal has something to write
    greedy.connection.peer_side.pending_replies.send(b"", kept=True)
    for at in range(0, len(many), READ_BYTES):
        if greedy.connection.reading_paused_by:
            break
        greedy.say(many[at : at + READ_BYTES])
    return greedy, lambda: house.broker.registry.pools[""].clients_bytes - before


Maker = Callable[[House], tuple[Greedy, bytes]]
EVERY = pytest.mark.parametrize("made", [of_mqtt, of_stomp, of_openwire, of_amqp1])


@EVERY
def test_no_more_is_read_of_a_client_that_is_owed_much(house: House, journal: Journal, made: Maker) -> None:
    greedy, counted = owed(house, journal, made)
    assert OUT_BYTES_MAX / 2 < counted() <= OUT_BYTES_MAX + TURN_BYTES
    assert "confirms" in greedy.connection.reading_paused_by
    journal.write()
    assert not greedy.connection.reading_paused_by
    assert counted() < OUT_BYTES_MAX / 8


@EVERY
def test_nothing_stays_of_a_client_that_leaves(house: House, journal: Journal, made: Maker) -> None:
    greedy, counted = owed(house, journal, made)
    assert counted() > OUT_BYTES_MAX / 2
    greedy.connection.close(Reason.CLIENT_GONE)
    house.run()
    assert counted() < OUT_BYTES_MAX / 8
    assert len(journal._waiting) == 1, "who declared the queue still waits"
