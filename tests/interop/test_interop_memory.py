"""What a client can have the broker keep for it alone: each kind has a limit that says no, to that client, on the wire.
Whoever else is there notices nothing."""

from __future__ import annotations

import pytest
from bench.wires.packets import encode_publish
from pamqp.commands import Basic, Tx
from tests.interop import amqp_raw
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.waiting import until

from headway.wire.mqtt.packets import ConnAck, PubAck, WillMessage

CONFIG = """
[listeners.mqtt]
url = "mqtt://127.0.0.1:0"
[listeners.amqp]
url = "amqp://127.0.0.1:0"
[pool]
memory = "1MB"
disk = "1MB"
disk_path = "{}"
"""
LONG = 60_000
ID_BYTES_MAX = 1024


@pytest.fixture(scope="module")
def small(start: BrokerFactory, tmp_path_factory: pytest.TempPathFactory) -> BrokerProcess:
    """16.5 MB for what clients take up besides records, half of it for one."""
    return start(CONFIG.format(tmp_path_factory.mktemp("spill")))


def clients_bytes(broker: BrokerProcess) -> int:
    return int(broker.get("/v1/broker")["pools"][0]["clients_bytes"])


@pytest.mark.parametrize(("version", "code"), [(5, 0x85), (4, 2)])
def test_a_client_id_has_a_length(small: BrokerProcess, name: str, version: int, code: int) -> None:
    fitting = (name * ID_BYTES_MAX)[:ID_BYTES_MAX]
    with Raw(small.port, fitting, version):
        pass
    with Raw(small.port, fitting + "x", version, granted=False) as refused:
        assert refused.connack.code == code
        refused.wait_end()


def test_a_subscription_too_many_is_refused_and_the_others_stay(small: BrokerProcess, name: str) -> None:
    with Raw(small.port, name) as greedy, Raw(small.port, f"{name}-another") as another:
        codes: list[int] = []
        while not codes or codes[-1] < 0x80:
            filters = [f"{name}/{len(codes) + at}/{'x' * LONG}" for at in range(4)]
            answer = greedy.subscribe(*filters)
            codes += answer.codes
        assert codes[-1] == 0x97
        assert "besides records" in (answer.reason or ""), answer
        assert 20 < codes.index(0x97) < 40
        another.subscribed(f"{name}/#")
        greedy.published(f"{name}/0/{'x' * LONG}", b"it lives on")
        assert greedy.message().payload == another.message().payload == b"it lives on"
        greedy.unsubscribe(f"{name}/0/{'x' * LONG}")
        greedy.subscribed(f"{name}/1000/{'x' * LONG}")
    with Raw(small.port, name, 4) as old:
        codes = []
        while not codes or codes[-1] < 0x80:
            codes += old.subscribe(f"{name}/{len(codes)}/{'x' * LONG}").codes
        assert codes[-1] == 0x80


def test_wills_have_a_limit(small: BrokerProcess, name: str) -> None:
    clients: list[Raw] = []
    will = WillMessage(f"{name}/will", b"x" * LONG)
    try:
        while not clients or clients[-1].connack.code == 0:
            clients.append(Raw(small.port, f"{name}-{len(clients)}", granted=False, will=will))
        assert clients[-1].connack.code == 0x97
        assert 100 < len(clients) < 150, "half of what all clients may take up: they are of one address"
        old = Raw(small.port, f"{name}-old", 4, granted=False, will=will)
        clients.append(old)
        assert old.connack.code == 3
        with Raw(small.port, f"{name}-modest") as modest:
            modest.subscribed(name)
            modest.published(name, b"others have room")
            assert modest.message().payload == b"others have room"
    finally:
        for client in clients:
            client.close()


def test_consumers_have_a_limit_in_amqp(small: BrokerProcess, name: str) -> None:
    port = small.ports["amqp"] or 0
    with amqp_raw.Raw(port) as client:
        client.open_channel(2)
        client.declare(name)
        for number in range(5000):
            client.do(Basic.Consume(queue=name, consumer_tag=f"{number}", no_ack=True, nowait=True), 1)
        closed = client.channel_closed(1)
        assert closed.reply_code == 506
        assert "besides records" in closed.reply_text
        client.publish("", name, b"the connection lives on", channel=2)
        client.sync(2)


def test_parts_of_large_packets_take_turns_and_everybody_finishes(small: BrokerProcess, name: str) -> None:
    """40 clients have half of a megabyte each: 20 MB, where 4 are to be had."""
    packet = encode_publish(f"{name}/large", bytes(990_000), version=5, qos=1, packet_id=1)
    clients = [Raw(small.port, f"{name}-{number}") for number in range(40)]
    sent = [0] * len(clients)
    most = 0
    try:
        for client in clients:
            client.sock.setblocking(False)
        while min(sent) < len(packet):
            for number, client in enumerate(clients):
                try:
                    sent[number] += client.sock.send(packet[sent[number] : sent[number] + 100_000])
                except BlockingIOError:
                    continue
            most = max(most, clients_bytes(small))
        for client in clients:
            client.sock.setblocking(True)
            client.sock.settimeout(60)
            assert client.expect(PubAck).packet_id == 1
        assert 1_000_000 < most < 7_000_000
    finally:
        for client in clients:
            client.close()


def test_whoever_is_refused_is_in_the_log(small: BrokerProcess, name: str) -> None:
    with Raw(small.port, "x" * 2000, granted=False) as refused:
        assert isinstance(refused.connack, ConnAck)
        refused.wait_end()
    with Raw(small.port, name) as greedy:
        def told() -> bool:
            """There is no more than a line a second."""
            greedy.subscribe(f"{name}/{greedy.next_id}/{'x' * LONG}")
            return f"a request of {name} was refused" in small.log.read_text()

        until(told, what="a line about it")
    assert "a client id may have 1024 bytes" in small.log.read_text()


def test_what_is_not_committed_has_a_limit(small: BrokerProcess, name: str) -> None:
    port = small.ports["amqp"] or 0
    with amqp_raw.Raw(port) as client:
        client.open_channel(2)
        client.declare(name)
        client.call(Tx.Select(), Tx.SelectOk)
        client.publish("", name, b"kept", channel=1)
        client.call(Tx.Commit(), Tx.CommitOk)
        before = clients_bytes(small)
        for _ in range(100):
            client.publish("", name, bytes(100_000), channel=1)
        closed = client.channel_closed(1)
        assert (closed.reply_code, "besides records, most of it transactions" in closed.reply_text) == (506, True)
        found = client.get(name, channel=2)
        assert found is not None
        assert found.body == b"kept"
        assert client.get(name, channel=2) is None
        assert clients_bytes(small) < before + 100_000
