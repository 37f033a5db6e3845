"""The wires: what they send is what the protocol says, and how long a delivery is is found by receiving two."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable

import pytest
from bench.driver.message import FILLER, STAMP, Template
from bench.errors import PeerFailed
from bench.peers.every import EVERY as PEERS
from bench.peers.peer import Peer, start
from bench.wires.amqp import PREFETCH, Amqp, AmqpQueue
from bench.wires.mqtt import Mqtt
from bench.wires.nats import Nats
from bench.wires.openwire import Openwire
from bench.wires.resp import Resp
from bench.wires.wire import Frame, Levels, Wire, measure
from bench.workloads.filters import TOPIC, distinct_filters
from tests.bench.wired import scripted

INSTALLED = [peer for peer in PEERS.values() if peer.find()]
ASKED = os.environ.get("HEADWAY_BENCH_PEERS", "").split(",")
OURS = ("headway", "headway-amqp", "headway-stomp", "headway-openwire", "headway-openwire-cached", "limit")
REAL = [peer for peer in INSTALLED if peer.name in (*OURS, *ASKED) or ASKED == ["all"]]


@pytest.mark.usefixtures("copied")
@pytest.mark.parametrize("peer", REAL, ids=lambda peer: peer.name)
def test_the_size_of_a_delivery_is_measured(peer: Peer) -> None:
    with start(peer) as running:
        small, large = (measure(peer.wire, running.port, ("bench", "size"), size) for size in (128, 1024))
        wild = measure(peer.wire, running.port, TOPIC, 64, distinct_filters(3)[-1])
    assert large.size_bytes >= small.size_bytes + 1024 - 128
    assert small.payload_at + 128 <= small.size_bytes
    assert wild.size_bytes > 64


@pytest.mark.usefixtures("copied")
def test_headways_delivery_is_as_long_as_mqtt_says() -> None:
    with start(PEERS["headway"]) as running:
        found = measure(Mqtt(), running.port, ("bench", "size"), 100)
    assert found == Frame(size_bytes=2 + 2 + 10 + 100, payload_at=14)


class Echo(Wire):
    """What is published comes back as ``spoil`` makes it."""

    def __init__(self, spoil: Callable[[bytes], bytes]) -> None:
        self.subscribers: list[socket.socket] = []
        self.spoil = spoil

    def open(self, port: int, name: str) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.settimeout(5)
        if name == "measure-in":
            self.subscribers.append(theirs)
        else:
            threading.Thread(target=self._deliver, args=(theirs,), daemon=True).start()
        return ours

    def _deliver(self, published: socket.socket) -> None:
        self.subscribers[0].sendall(self.spoil(published.recv(9999)))

    def subscribe(self, sock: socket.socket, levels: Levels, conflate: str | None = None) -> None: ...

    def publication(self, sock: socket.socket, levels: Levels, payload: bytes, number: int = 0) -> bytes:
        return b"<" + payload + b">"


def test_deliveries_of_unequal_length_are_not_accepted() -> None:
    """Counting bytes would be wrong then: better no figure."""
    assert measure(Echo(lambda said: said), 0, ("a",), 16) == Frame(18, 1)
    with pytest.raises(PeerFailed, match="not of"):
        measure(Echo(lambda said: said + b"!"), 0, ("a",), 16)


def test_nats_asks_for_a_sign_of_life_without_being_counted() -> None:
    wire = Echo(lambda said: b"PING\r\n" + said)
    wire.noise = Nats.noise
    assert measure(wire, 0, ("a",), 16) == Frame(18, 1)


def test_nats() -> None:
    with scripted([b"PING\r\nPONG\r\n", b"PONG\r\n", b""], greeting=b'INFO {"server_id":"x"}\r\n') as server:
        wire = Nats()
        sock = wire.open(server.port, "me")
        wire.subscribe(sock, ("a", "+", "c"))
        sock.close()
    assert server.heard[0].startswith(b"CONNECT {")
    assert server.heard[1] == b"SUB a.*.c 1\r\nPING\r\n"
    assert wire.publication(sock, ("a", "b"), b"hello") == b"PUB a.b 5\r\nhello\r\n"


@pytest.mark.parametrize(
    ("levels", "verb", "channel"), [(("a", "b"), b"subscribe", b"a/b"), (("a", "+"), b"psubscribe", b"a/*")]
)
def test_redis(levels: Levels, verb: bytes, channel: bytes) -> None:
    answer = b"*3\r\n$%d\r\n%b\r\n$3\r\n%b\r\n:1\r\n" % (len(verb), verb, channel)
    with scripted([b"+PONG\r\n", answer]) as server:
        wire = Resp()
        sock = wire.open(server.port, "me")
        wire.subscribe(sock, levels)
        sock.close()
    assert server.heard[1] == b"*2\r\n$%d\r\n%b\r\n$3\r\n%b\r\n" % (len(verb), verb, channel)


def test_what_a_peer_refuses_is_said() -> None:
    with scripted([b"-NOAUTH Authentication required.\r\n"]) as server, pytest.raises(PeerFailed, match="-NOAUT"):
        Resp().open(server.port, "me")
    with scripted([b"\x20\x02\x00\x05"]) as server, pytest.raises(PeerFailed, match="CONNACK says 0x05"):
        Mqtt().open(server.port, "me")


def test_amqp_publishes_three_frames() -> None:
    method, header, body = Amqp().publication(socket.socket(), ("a", "b"), b"hello").split(b"\xce")[:3]
    assert method == b"\x01\x00\x01\x00\x00\x00\x15\x00\x3c\x00\x28\x00\x00\x09amq.topic\x03a.b\x00"
    assert header == b"\x02\x00\x01\x00\x00\x00\x0e\x00\x3c\x00\x00" + b"\x00" * 7 + b"\x05\x00\x00"
    assert body == b"\x03\x00\x01\x00\x00\x00\x05hello"


def test_amqp_consumers_share_a_queue_that_is_published_to_by_its_name() -> None:
    kinds = (b"\x00\x32\x00\x0b", b"\x00\x3c\x00\x0b", b"\x00\x3c\x00\x15")
    answers = [b"\x01\x00\x01\x00\x00\x00\x04" + kind + b"\xce" for kind in kinds]
    wire, named = AmqpQueue(), b"\x00\x00\x03a.b"
    with scripted(answers) as server, socket.create_connection(("127.0.0.1", server.port)) as sock:
        wire.subscribe(sock, ("a", "b"))
    declare, qos, consume = (said[7:-1] for said in server.heard)
    assert declare == b"\x00\x32\x00\x0a" + named + b"\x00" + b"\x00" * 4, "not durable, not exclusive, not auto-delete"
    assert qos == b"\x00\x3c\x00\x0a" + b"\x00" * 4 + PREFETCH.to_bytes(2, "big") + b"\x00"
    assert consume == b"\x00\x3c\x00\x14" + named + b"\x01c" + b"\x00" + b"\x00" * 4, "with acknowledgements"
    method, *_ = wire.publication(sock, ("a", "b"), b"hello").split(b"\xce")
    assert method[7:] == b"\x00\x3c\x00\x28\x00\x00\x00\x03a.b\x00", "the exchange without a name"


def test_openwire_says_how_long_its_commands_are_and_names_connections_alike() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sock:
        wire = Openwire()
        published = wire.publication(sock, ("a", "b"), b"hello")
        acknowledged = wire.acknowledgement(sock, ("a", "+"))
        name = b"bench-%05d" % sock.getsockname()[1]
    for command, kind in ((published, 24), (acknowledged, 22)):
        assert int.from_bytes(command[:4], "big") == len(command) - 4
        assert command[4] == kind
        assert name in command
    assert b"\x00\x03a.*" in acknowledged
    assert acknowledged.endswith(wire.ack_every.to_bytes(4, "big") + b"\0"), "and no cause"


def test_distinct_filters_are_as_many_of_one_length_and_all_match() -> None:
    filters = distinct_filters(1000)
    assert len(set(filters)) == 1000
    assert {len("/".join(levels)) for levels in filters} == {19}
    assert all(mine in ("+", theirs) for levels in filters for mine, theirs in zip(levels, TOPIC, strict=True))


@pytest.mark.parametrize("wire", [Mqtt(), Openwire()], ids=["mqtt", "openwire"])
def test_a_batch_has_stamps_where_payloads_begin_and_numbers_only_where_the_protocol_has_them(wire: Wire) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sock:
        template = Template(wire, sock, ("a", "b"), 32)
        batch = template.stamped(range(7000, 7003))
        expected = [
            wire.publication(sock, ("a", "b"), STAMP.pack(7000 + n) + FILLER * 24, n + 1).hex() for n in range(3)
        ]
    size = template.size_bytes
    assert [batch[at : at + size].hex() for at in range(0, len(batch), size)] == expected
