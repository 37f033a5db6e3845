"""Bad input and limits: a clear word for whoever caused it, and nothing else harmed."""

from __future__ import annotations

import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.wires.packets import connect, encode_publish, encode_subscribe
from tests.interop.command import headway
from tests.interop.conftest import BrokerFactory
from tests.interop.pahos import Paho
from tests.interop.process import BrokerProcess
from tests.interop.raw import PubRec, Raw
from tests.interop.waiting import until
from tests.passwords import cheap_hash

from headway.wire.mqtt.packets import ConnAck, TopicRequest


@pytest.fixture
def bystander(broker: BrokerProcess, name: str) -> Iterator[None]:
    """Somebody who does everything right, and must not notice any of it."""
    with Raw(broker.port, f"{name}-good", keep_alive_s=600) as reader, Raw(broker.port) as writer:
        reader.subscribed(TopicRequest(f"{name}/good", 1))
        writer.publish(f"{name}/good", b"before", 1)
        yield
        writer.published(f"{name}/good", b"after")
        assert [m.payload for m in reader.so_far()] == [b"before", b"after"]


# -- packets --------------------------------------------------------------------------------------------------------

CONNECT = connect("bad-one")
BAD_FIRST = {
    "something before CONNECT": encode_publish("a", b"x"),
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "TLS": bytes.fromhex("16 0301 0200 0100"),
    "zeros": bytes(100),
    "CONNECT with reserved flags": b"\x11" + CONNECT[1:],
    "an endless length": b"\x10\xff\xff\xff\xff\xff",
    "a CONNECT longer than any": b"\x10\xff\xff\xff\x7f",
}


@pytest.mark.parametrize("data", BAD_FIRST.values(), ids=BAD_FIRST.keys())
@pytest.mark.usefixtures("bystander")
def test_what_is_no_connect_ends_the_connection(broker: BrokerProcess, data: bytes) -> None:
    before = broker.get("/v1/broker")["protocol_errors"]
    with Raw(broker.port, connect=False) as client:
        client.send(data)
        client.wait_end()
    assert broker.get("/v1/broker")["protocol_errors"] == before + 1


@pytest.mark.parametrize(("level", "answer"), [(3, 1), (6, 0x84), (0, 1)])
def test_an_unknown_version_is_told_so(broker: BrokerProcess, level: int, answer: int) -> None:
    with Raw(broker.port, version=5 if level > 4 else 4, connect=False) as client:
        client.send(CONNECT[:8] + bytes((level,)) + CONNECT[9:])
        assert client.expect(ConnAck).code == answer
        client.wait_end()


BAD_LATER = {
    "a second CONNECT": (CONNECT, 0x82),
    "a reserved packet type": (b"\x00\x00", 0x82),
    "a server's packet": (b"\xd0\x00", 0x82),
    "reserved flags": (b"\x80" + encode_subscribe(1, ["a"])[1:], 0x81),
    "QoS 3": (b"\x36\x05\x00\x01a\x00\x01", 0x81),
    "a wildcard in a topic": (encode_publish("a/#", b"x"), 0x90),
    "no topic": (encode_publish("", b"x"), 0x82),
    "an unknown alias": (encode_publish("", b"x", alias=5), 0x82),
    "an alias out of range": (encode_publish("a", b"x", alias=60_000), 0x94),
    "packet id 0": (b"\x32\x06\x00\x01a\x00\x00\x00", 0x82),
    "an empty SUBSCRIBE": (b"\x82\x03\x00\x01\x00", 0x82),
    "a length out of bounds": (b"\x30\xff\xff\xff\xff\x01", 0x81),
    "too long": (b"\x30\xff\xff\xff\x7f", 0x95),
    "not UTF-8": (b"\x30\x05\x00\x02\xff\xfe\x00", 0x81),
    "a property twice": (b"\x30\x08\x00\x01a\x04\x01\x00\x01\x01", 0x82),
    "AUTH": (b"\xf0\x00", 0x82),
}


@pytest.mark.parametrize(("data", "code"), BAD_LATER.values(), ids=BAD_LATER.keys())
@pytest.mark.usefixtures("bystander")
def test_a_protocol_error_is_named_and_what_came_before_it_counts(
    broker: BrokerProcess, name: str, data: bytes, code: int
) -> None:
    with Raw(broker.port, f"{name}-bad") as client, Raw(broker.port) as reader:
        reader.subscribed(f"{name}/x")
        client.send(encode_publish(f"{name}/x", b"counts") + data + encode_publish(f"{name}/x", b"does not"))
        disconnect = client.wait_disconnect()
        assert disconnect.code == code, disconnect
        assert disconnect.reason
        assert [m.payload for m in reader.so_far()] == [b"counts"]


@pytest.mark.usefixtures("bystander")
def test_the_largest_packet_is_taken_and_one_byte_more_is_not(broker: BrokerProcess, name: str) -> None:
    with Raw(broker.port) as writer, Raw(broker.port) as reader:
        limit = writer.connack.fields.max_packet_bytes
        assert limit == 1_000_000
        reader.subscribed(name)
        overhead = len(encode_publish(name, b"x" * 900_000)) - 900_000
        writer.publish(name, b"x" * (limit - overhead))
        assert len(reader.message().payload) == limit - overhead
        writer.publish(name, b"x" * (limit - overhead + 1))
        assert writer.wait_disconnect().code == 0x95


@pytest.mark.parametrize("filter", ["a/#/b", "a#", "+a", "#/", "+/+/#/"])
def test_a_bad_filter_fails_and_the_good_ones_beside_it_do_not(broker: BrokerProcess, name: str, filter: str) -> None:
    with Raw(broker.port) as client:
        answer = client.subscribe(filter, name)
        assert answer.codes == (0x8F, 0)
        assert answer.reason
    with Raw(broker.port, version=4) as old:
        assert old.subscribe(filter, name).codes == (0x80, 0)


@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.usefixtures("bystander")
def test_who_is_reset_in_mid_stream_is_noticed(broker: BrokerProcess, name: str, answers: bool) -> None:
    """Also when its last bytes ask for no answer and it has no keep-alive."""
    last = encode_publish(name, b"x" * 50, qos=1, packet_id=7) * 50 if answers else b"\x40\x02\x00\x09" * 50
    for number in range(10):
        client = Raw(broker.port, f"{name}-{number}").subscribed(f"{name}/{number}")
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.send(last)
        client.close()
    until(lambda: not any(row["client"].startswith(f"{name}-") and row["client"] != f"{name}-good"
                          for row in broker.get("/v1/consumers")["consumers"]))  # fmt: skip


# -- starting, stopping, reloading ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ('[listeners.mqtt]\nurl = "mqtt://0.0.0.0:0"', "allow_anonymous"),
        ('[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\nconnection_max = 5', "connections_max"),
        ('[listeners.mqtt]\nurl = "mqtt://203.0.113.1:1883"\nallow_anonymous = true', "cannot listen"),
        ('[pool]\ndisk_path = "/proc"', "disk_path"),
        ('[pool]\ndisk_path = "/dev/null/x"', "disk_path"),
        ("[journal]\npath = 1", "journal"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_at_the_start(tmp_path: Path, config: str, says: str) -> None:
    file = tmp_path / "headway.toml"
    file.write_text('[server]\nadmin = "http://127.0.0.1:0"\n' + config)
    done = headway("serve", "-c", str(file))
    assert done.returncode == 2, done
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 2


def test_a_port_in_use_is_said(broker: BrokerProcess, tmp_path: Path) -> None:
    test_what_cannot_work_is_refused_at_the_start(
        tmp_path, f'[listeners.mqtt]\nurl = "mqtt://127.0.0.1:{broker.port}"', "in use"
    )


def test_a_clean_stop(start: BrokerFactory, name: str) -> None:
    broker = start()
    with (
        Raw(broker.port, name) as five,
        Raw(broker.port, version=4) as three,
        Raw(broker.port, receive_buffer=4096) as stuck,
        Raw(broker.port) as writer,
    ):
        client = Paho(broker.port, f"{name}-paho")
        five.subscribed(name)
        stuck.subscribed(name)
        for _ in range(20):
            writer.published(name, b"x" * 100_000)
        five.messages(20)
        broker.signal(signal.SIGTERM)
        disconnect = five.wait_disconnect()
        assert disconnect.code == 0x8B
        assert disconnect.reason
        three.wait_end()
        until(lambda: client.ended)
        assert client.ended[0].value == 0x8B
        client.client.loop_stop()
        assert stuck.wait_disconnect().code == 0x8B  # behind what it had not read, and only whole frames
    assert broker.wait() == 0
    assert "Traceback" not in broker.log.read_text()
    with pytest.raises(ConnectionRefusedError), socket.socket() as sock:
        sock.connect(("127.0.0.1", broker.port))


def test_reload(start: BrokerFactory, name: str) -> None:
    def policy(records: int) -> str:
        return f"""
[[policy]]
name = "p{records}"
[[policy.rule]]
when = {{ lag_records = {records} }}
then = "disconnect"
"""

    broker = start(policy(1_000_000))
    with Raw(broker.port, name, receive_max=1) as reader, Raw(broker.port) as writer:
        reader.subscribed(TopicRequest(name, 1))
        for i in range(50):
            writer.publish(name, b"%d" % i, 1)
        writer.so_far()
        status, body = broker.call("/v1/preview", "POST", policy(20))
        assert status == 200, body
        assert name.encode() in body
        broker.write(policy(20).replace("lag_records", "lag_rekords"))
        broker.signal(signal.SIGHUP)
        until(lambda: "nothing was changed" in broker.log.read_text())
        assert broker.consumer(name)["policy"] == "p1000000"
        broker.write(policy(20))
        broker.signal(signal.SIGHUP)
        assert reader.wait_disconnect().code == 0x97
        assert broker.verdicts(name)[0]["policy"] == "p20"
    broker.stop()


def test_reload_takes_new_users(start: BrokerFactory, name: str) -> None:
    listener = '[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\nallow_anonymous = false\n[auth.users]\n'
    ann, bob = (f'{who} = "{cheap_hash(who)}"\n' for who in ("ann", "bob"))
    broker = start(listener + ann)

    def code(who: str) -> int:
        with Raw(broker.port, name, granted=False, username=who, password=who.encode()) as client:
            return client.connack.code

    assert [code("ann"), code("bob")] == [0, 0x86]
    broker.write(listener + bob)
    broker.signal(signal.SIGHUP)
    until(lambda: code("bob") == 0)
    assert code("ann") == 0x86
    broker.stop()


def test_an_operator_can_end_a_connection(broker: BrokerProcess, name: str) -> None:
    with Raw(broker.port, name) as client:
        assert broker.call(f"/v1/clients/{name}", "DELETE")[0] == 204
        disconnect = client.wait_disconnect()
        assert (disconnect.code, bool(disconnect.reason)) == (0x98, True)
    until(lambda: broker.call(f"/v1/clients/{name}", "DELETE")[0] == 404)


def test_refused_publishes_are_counted_and_answered(broker: BrokerProcess, name: str) -> None:
    with Raw(broker.port, name) as writer:
        writer.publish("$SYS/x", b"", 2)
        assert writer.expect(PubRec).code == 0x87
        assert broker.publisher(name)["refused_records"] == 1
