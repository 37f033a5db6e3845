"""Publishers that are held back: whether they say goodbye, leave, or vanish is found out, though they are not read."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable

import pytest
from bench.wires.packets import connect, encode_publish
from pamqp.commands import Channel, Connection, Queue
from tests.server import test_amqp1_greedy as amqp1
from tests.server.amqp_stage import Client, House, message, method
from tests.server.greedy_stage import Greedy
from tests.server.pretended import Socket
from tests.wire import openwire_frames as frames

from headway.server.connections.connection import AHEAD_BYTES_MAX
from headway.server.mqtt.peer import MqttPeer
from headway.server.openwire.peer import OpenWirePeer
from headway.server.stomp.peer import StompPeer
from headway.wire.amqp1.performatives import Close
from headway.wire.amqp1.replies import write
from headway.wire.openwire.codes import Type

LOOKS_S = 3.0


@pytest.fixture
def house() -> House:
    return House('[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n')


def hold_back(house: House, client: Client | Greedy) -> None:
    """As a policy or a full pool does; nobody lets go of it."""
    session = client.connection.peer_side.session
    assert session is not None
    house.broker.registry.backpressure.pause(session, house.broker.registry.ledger, house.now())
    house.turn_soon()
    house.run()
    assert "publisher" in client.connection.reading_paused_by
    if isinstance(client, Client):
        client.run()
        assert client.new() == ["Connection.Blocked"]


STOMP_SEND = b"SEND\ndestination:/queue/work\n\nx\0"
CLIENTS: dict[str, tuple[Callable[[House], Greedy], bytes, bytes, bytes]] = {
    "amqp1": (
        amqp1.client, amqp1.sender(0, "queue://work") + amqp1.transfer(0, 0, b"x"),
        write(0, Close()), write(0, Close()),
    ),
    "stomp": (
        lambda house: Greedy(house, StompPeer, b"CONNECT\naccept-version:1.2\nhost:x\n\n\0"), STOMP_SEND,
        b"DISCONNECT\nreceipt:bye\n\n\0", b"RECEIPT\nreceipt-id:bye\n",
    ),
    "openwire": (
        lambda house: Greedy(house, OpenWirePeer, frames.wire_format() + frames.connection_info("c")),
        frames.message(Type.BYTES_MESSAGE, frames.queue("work"), b"x"),
        frames.frame(Type.SHUTDOWN_INFO, wants_response=False), b"",
    ),
}  # fmt: skip


@pytest.mark.parametrize("wire", CLIENTS)
def test_a_goodbye_is_answered_behind_what_waits(house: House, wire: str) -> None:
    make, publish, goodbye, answer = CLIENTS[wire]
    client = make(house)
    if wire != "amqp1":
        client.say(publish)
    before = house.stats("work").records if wire != "amqp1" else 0
    client.sock.taken.clear()
    hold_back(house, client)
    client.send(publish + goodbye)
    house.pass_time(LOOKS_S)
    assert answer in bytes(client.sock.taken)
    assert not client.connection.open
    assert house.stats("work").records == before + 1, "what it published before is not lost"


def test_a_goodbye_of_mqtt_ends_the_session_behind_what_waits(house: House) -> None:
    sock = Socket()
    connection = house.accept(sock, "mqtt", MqttPeer)
    sock.incoming.append(connect("m", 5, keep_alive_s=0))
    house.run()
    session = connection.peer_side.session
    assert session is not None
    house.broker.registry.backpressure.pause(session, house.broker.registry.ledger, house.now())
    house.turn_soon()
    house.run()
    watcher = Client(house, "watcher")
    watcher.declare("q")
    watcher.say(Queue.Bind(queue="q", exchange="amq.topic", routing_key="t"))
    sock.incoming.append(encode_publish("t", b"last") + b"\xe0\x00")
    house.pass_time(LOOKS_S)
    assert not connection.open
    assert watcher.drain("q") == [b"last"]


@pytest.mark.parametrize("how", ["connection", "channel"])
def test_a_close_of_amqp_is_answered_and_holds_back_again(house: House, how: str) -> None:
    client = Client(house, "c", channels=2)
    client.declare("work")
    hold_back(house, client)
    close = Connection.Close(200, "", 0, 0) if how == "connection" else Channel.Close(200, "", 0, 0)
    client.send(b"".join(message(1, "work", b"x")) + method(0 if how == "connection" else 1, close))
    assert client.new() == []
    house.pass_time(LOOKS_S)
    client.run()
    assert client.new() == ["Connection.CloseOk" if how == "connection" else "1 Channel.CloseOk"]
    assert house.stats("work").records == 1
    if how == "channel":
        client.send(b"".join(message(2, "work", b"y")))
        house.pass_time(LOOKS_S)
        assert house.stats("work").records == 1, "it is held back as before"
        assert client.open


def test_commands_without_publishes_before_them_are_handled(house: House) -> None:
    client = Client(house, "c")
    hold_back(house, client)
    client.send(method(1, Queue.Declare(queue="q")))
    house.pass_time(LOOKS_S)
    client.run()
    assert client.new() == ["1 Queue.DeclareOk q 0 0"]


def test_a_client_that_ends_its_side_is_let_go_with_all_it_sent(house: House) -> None:
    client = Client(house, "c")
    client.declare("mine", exclusive=True)
    client.declare("work")
    hold_back(house, client)
    client.sock.incoming += [b"".join(message(1, "work", b"x") * 3), b"", b""]
    house.pass_time(LOOKS_S)
    assert not client.open
    assert "mine" not in house.queues
    assert house.stats("work").records == 3


@pytest.mark.parametrize("error", [errno.ECONNRESET, errno.ETIMEDOUT])
def test_a_client_that_is_reset_or_vanishes_is_noticed(house: House, error: int) -> None:
    client = Client(house, "c")
    client.declare("mine", exclusive=True)
    hold_back(house, client)
    client.sock.getsockopt = lambda level, option, size=0: error if option == socket.SO_ERROR else 0  # type: ignore[method-assign]
    house.pass_time(LOOKS_S)
    assert not client.open
    assert "mine" not in house.queues


def test_little_is_read_of_a_flood_and_it_is_counted(house: House) -> None:
    client = Client(house, "c")
    client.declare("work")
    pool = client.connection.pool
    hold_back(house, client)
    before = pool.clients_bytes
    flood = b"".join(message(1, "work", bytes(4000)) * 1000)
    client.sock.incoming.append(flood)
    house.pass_time(20)
    assert len(flood) - sum(map(len, client.sock.incoming)) == AHEAD_BYTES_MAX
    assert pool.clients_bytes - before >= AHEAD_BYTES_MAX
    assert house.ahead_bytes == AHEAD_BYTES_MAX
    assert house.stats("work").records == 0
    house.broker.registry.backpressure.resume(house.broker.registry.ledger, house.now())
    house.turn_soon()
    house.run()
    assert house.ahead_bytes == 0
    assert house.stats("work").records == 1000


def test_a_killed_client_whose_last_bytes_the_kernel_cannot_send_is_found_in_its_table(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(house, "c")
    client.declare("mine", exclusive=True)
    client.declare("work")
    hold_back(house, client)
    flood = b"".join(message(1, "work", bytes(4000)) * 1000)
    client.sock.incoming += [flood, b"", b""]
    house.pass_time(20)
    assert client.open
    client.sock.getsockopt = lambda level, option, size=0: bytes([8]) if size else 0  # type: ignore[method-assign]
    house.pass_time(LOOKS_S)
    assert not client.open
    assert house.stats("work").records == 1000
