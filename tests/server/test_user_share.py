"""What one user's clients take up, connected or away: a share of what all clients may take up, and no more."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import pytest
from bench.wires.packets import encode_subscribe
from pamqp.commands import Queue
from tests.server.amqp_stage import Client, House
from tests.server.greedy_stage import Greedy
from tests.server.pretended import Socket
from tests.wire import openwire_frames as jms

from headway.server.amqp1.peer import Amqp1Peer
from headway.server.connections import Connection
from headway.server.mqtt.peer import MqttPeer
from headway.server.openwire.peer import OpenWirePeer
from headway.server.stomp.peer import StompPeer
from headway.wire.amqp1.performatives import Attach, Begin, Open, Source, Target
from headway.wire.amqp1.replies import write
from headway.wire.mqtt.packets import Connect, TopicRequest, encode_connect

SESSIONS, FILTERS = 40, 300
TOLD = b"pool.max_user_share permits"


@pytest.fixture
def house() -> House:
    return House('[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n')


def came(house: House, name: str, *said: bytes, version: int = 5, expiry_s: int = 600) -> tuple[Connection, Socket]:
    """A client of MQTT with a persistent session, from an address of its own if its name has one."""
    sock = Socket()
    connection = house.accept(sock, "mqtt", MqttPeer)
    connection.address = f"{name.partition(' ')[2] or '10.0.0.1'}:1"
    clean = not expiry_s if version == 4 else True
    expiry = {"session_expiry_s": expiry_s} if version == 5 else {}
    sock.incoming += [encode_connect(Connect(version, name, clean, **expiry)), *said]  # type: ignore[arg-type]
    house.run()
    return connection, sock


def filters(name: str, count: int = FILTERS, version: int = 5) -> bytes:
    return encode_subscribe(1, [TopicRequest(f"{name}/{at}/x", 0) for at in range(count)], version=version)


def leave(house: House, *socks: Socket) -> None:
    for sock in socks:
        sock.incoming.append(b"")
    house.run()


def test_one_addresss_sessions_leave_room_for_others(house: House) -> None:
    pool = house.broker.registry.pool_of("mqtt")
    for number in range(SESSIONS):
        _, sock = came(house, f"c{number}", filters(f"c{number}"))
        house.pass_time(0)
        leave(house, sock)
    assert pool.clients_bytes <= pool.clients_limit * pool.owners.share + 100_000
    _, other = came(house, "other 10.0.0.2", filters("other"))
    assert bytes(other.taken).endswith(bytes(FILTERS)), "every filter is granted"


def test_one_addresss_connected_clients_leave_room_for_others(house: House) -> None:
    pool = house.broker.registry.pool_of("mqtt")
    for number in range(4):
        groups = encode_subscribe(1, [TopicRequest(f"$share/g{number}-{at}/hot", 0) for at in range(1500)], version=5)
        _, sock = came(house, f"c{number}", groups, expiry_s=0)
        house.pass_time(0)
    held = pool.clients_bytes
    assert TOLD in sock.taken, "it is told why"
    assert pool.clients_limit * 0.49 < held <= pool.clients_limit * pool.owners.share + 20_000
    _, login = came(house, "login", filters("login", 1), expiry_s=0)
    assert login.taken[3] == 0, "it leaves nothing behind"
    assert login.taken[-1] == 0x97
    _, other = came(house, "other 10.0.0.2", filters("other"))
    assert bytes(other.taken).endswith(bytes(FILTERS)), "every filter is granted"


def test_what_two_addresses_ask_for_leaves_room_for_logins(house: House) -> None:
    pool = house.broker.registry.pool_of("mqtt")
    for number in range(4):
        came(house, f"c{number} 10.0.0.{number // 2}", *[filters(f"c{number}-{at}") for at in range(9)], expiry_s=0)
        house.pass_time(0)
    _, login = came(house, "login 10.0.0.9", filters("login", 1))
    assert login.taken[3] == 0
    assert b"all together may take up" in login.taken
    assert pool.clients_bytes < pool.clients_limit


def test_a_listener_has_another_share_of_the_common_pool() -> None:
    text = '[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n[listeners.mqtt.pool]\nmax_user_share = "10%"\n'
    house = House(text)
    pool = house.broker.registry.pool_of("")
    assert house.broker.registry.pool_of("mqtt") is pool
    for number in range(4):
        _, sock = came(house, f"c{number}", *[filters(f"c{number}-{at}") for at in range(4)])
        house.pass_time(0)
    assert TOLD in sock.taken
    assert pool.clients_limit * 0.09 < pool.clients_bytes <= pool.clients_limit * 0.1 + 100_000


@pytest.mark.parametrize(("version", "code"), [(5, 0x97), (4, 0x80)])
def test_a_client_is_told_and_may_end_something(house: House, version: int, code: int) -> None:
    owners = house.broker.registry.pool_of("mqtt").owners
    connection, sock = came(house, "c", filters("a", 2, version), version=version)
    owners.share = 0.0
    sock.taken.clear()
    sock.incoming.append(filters("b", 1, version))
    house.run()
    assert sock.taken[-1] == code
    assert (TOLD in sock.taken) == (version == 5)
    assert connection.open
    _, late = came(house, "late", version=version)
    assert (0x97 if version == 5 else 3) in late.taken[3:5], "a further session"
    owners.share = 0.5
    sock.incoming.append(filters("b", 1, version))
    house.run()
    assert sock.taken[-1] == 0


def test_what_ends_counts_no_more(house: House) -> None:
    owners = house.broker.registry.pool_of("mqtt").owners
    first, second = came(house, "c", filters("a")), came(house, "d", filters("a", 9, 4), version=4)
    assert owners._bytes.keys() == {"clients from 10.0.0.1"}
    leave(house, first[1], second[1])
    assert owners._bytes, "they stay"
    others = [came(house, "c 10.0.0.3", expiry_s=0), came(house, "c", expiry_s=0)]
    others.append(came(house, "d", version=4, expiry_s=0))
    house.pass_time(5)
    assert owners._bytes.keys() == {"clients from 10.0.0.1", "clients from 10.0.0.3"}
    leave(house, *(sock for _, sock in others))
    house.pass_time(5)
    assert not owners._bytes


def test_queues_have_a_share(house: House) -> None:
    owners = house.broker.registry.queue_owners
    client = Client(house, "c")
    client.declare("q", durable=True)
    client.say(Queue.Bind(queue="q", exchange="amq.topic", routing_key="a.#"))
    [taken_bytes] = owners._bytes.values()
    owners.share = 0.0
    assert client.say(Queue.Declare(queue="mine", exclusive=True)) == ["1 Channel.Close 506"]
    client = Client(house, "e")
    assert client.say(Queue.Bind(queue="q", exchange="amq.topic", routing_key="b.#")) == ["1 Channel.Close 506"]
    assert TOLD in client.bytes
    assert list(owners._bytes.values()) == [taken_bytes]
    owners.share = 0.5
    other = Client(house, "d")
    other.say(Queue.Delete(queue="q"))
    assert not owners._bytes


def durable_stomp(house: House) -> tuple[Greedy, bytes]:
    client = Greedy(house, StompPeer, b"CONNECT\naccept-version:1.2\nhost:x\nclient-id:c\n\n\0")
    return client, (b"SUBSCRIBE\nid:1\ndestination:/topic/a\nactivemq.subscriptionName:s\nreceipt:r\n\n\0")


def durable_jms(house: House) -> tuple[Greedy, bytes]:
    client = Greedy(house, OpenWirePeer, jms.wire_format() + jms.connection_info("c"))
    return client, jms.consumer_info(jms.consumer_id(), jms.topic("a"), subscription="s")


def durable_amqp1(house: House) -> tuple[Greedy, bytes]:
    opening = b"AMQP\0\1\0\0" + write(0, Open("c", None, 65_536, 255)) + write(0, Begin(None, 0, 9, 9, 9))
    source = Source("topic://a", durable=2, expiry_policy="never")
    attach = Attach("s", 0, True, source=source, target=Target(), initial_delivery_count=None)
    return Greedy(house, Amqp1Peer, opening), write(0, attach)


@pytest.mark.parametrize("client", [durable_stomp, durable_jms, durable_amqp1])
def test_durable_subscriptions_have_a_share(
    house: House, client: Callable[[House], tuple[Greedy, bytes]]
) -> None:
    greedy, subscribe = client(house)
    house.broker.registry.queue_owners.share = 0.0
    assert TOLD in greedy.say(subscribe)
    assert not house.broker.registry.queue_owners._bytes


@pytest.mark.parametrize("filter", ["own/{}/hot", "own/{}/+", "$share/own{}/hot", "$share/own{}/+/hot"])
def test_a_subscription_takes_up_no_more_than_is_counted(house: House, filter: str) -> None:
    _, sock = came(house, "c")
    session = house.broker.registry.sessions["c"]

    def subscribe(first: int) -> None:
        wanted = [TopicRequest(filter.format(at), 0) for at in range(first, first + FILTERS)]
        sock.incoming.append(encode_subscribe(1, wanted, version=5))
        house.run()
        sock.taken.clear()
        gc.collect()

    subscribe(0)  # with what is made once
    counted_bytes = session.tab.bytes
    tracemalloc.start()
    try:
        subscribe(FILTERS)
        taken_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken_bytes <= session.tab.bytes - counted_bytes
