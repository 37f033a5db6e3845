"""STOMP beside the other protocols, in WebSockets and in TLS; permissions; slow consumers, who are told why."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
import stomp
from bench.wires.websocket import BINARY, TEXT, Frames, frame, upgrade
from tests.interop.amqp_pika import Pika
from tests.interop.conftest import BrokerFactory
from tests.interop.permitted import ROOT, permission, reload
from tests.interop.process import BrokerProcess
from tests.interop.stomps import Client, Heard, Raw
from tests.interop.waiting import PATIENCE_S, until
from tests.passwords import cheap_hash

CONFIG = f"""
[listeners.stomp]
url = "stomp://127.0.0.1:0"
[listeners.stomps]
url = "stomps://127.0.0.1:0"
[listeners.stomps.tls]
certificate = "FOLDER/server.pem"
key = "FOLDER/server-key.pem"
[listeners.autos]
url = "autos://127.0.0.1:0"
[listeners.autos.tls]
certificate = "FOLDER/server.pem"
key = "FOLDER/server-key.pem"
[listeners.web]
url = "ws://127.0.0.1:0"
[listeners.mqtt]
url = "mqtt://127.0.0.1:0"
[listeners.amqp]
url = "amqp://127.0.0.1:0"
[auth.users]
alice = "{cheap_hash("secret")}"
root = "{cheap_hash("secret")}"
{ROOT}
{permission(
    "alice", publish=["mine/#", "$queue/mine/#"], subscribe=["mine/#", "$queue/mine/#"], declare=["$queue/mine/#"]
)}
[[topic]]
filter = "keyed/#"
key = "/id"
[[policy]]
name = "cut"
topics = ["cut/#"]
[[policy.rule]]
when = {{ lag_records = 50 }}
then = {{ action = "disconnect" }}
[[policy]]
name = "delete"
topics = ["delete/#"]
[[policy.rule]]
when = {{ lag_records = 50 }}
then = {{ action = "delete_subscription" }}
[[policy]]
name = "ask"
topics = ["ask/#"]
[[policy.rule]]
when = {{ lag_records = 50 }}
then = {{ action = "close_consumer", within = "100ms" }}
[[policy]]
name = "drop"
topics = ["drop/#"]
[[policy.rule]]
when = {{ lag_records = 50 }}
then = {{ action = "discard", which = "oldest", keep_records = 10 }}
[[policy]]
name = "acks"
topics = ["$queue/acks"]
[[policy.rule]]
when = {{ ack_age = "100ms" }}
then = {{ action = "disconnect" }}
"""
LOGIN = {"login": "root", "passcode": "secret"}
SUBPROTOCOL = ["Sec-WebSocket-Protocol: v12.stomp"]
"""stomp.py asks for none by itself."""
CONNECT = b"CONNECT\naccept-version:1.2\nlogin:root\npasscode:secret\n\n\0"


@pytest.fixture(scope="module")
def house(start: BrokerFactory, certificates: Path) -> Iterator[BrokerProcess]:
    process = start(CONFIG.replace("FOLDER", str(certificates)), server={"send_buffer": "16KiB"})
    process.login = "root:secret"
    yield process
    process.stop()


def joined(house: BrokerProcess, listener: str = "stomp", **more: object) -> Client:
    return Client(house.ports[listener] or 0, **{**LOGIN, **more})  # type: ignore[arg-type]


# -- other protocols ---------------------------------------------------------------------------------------------------


def test_queues_are_shared_with_amqp(house: BrokerProcess, name: str) -> None:
    stomp = joined(house)
    amqp = Pika(house.ports["amqp"] or 0, credentials=pika.PlainCredentials("root", "secret"))
    stomp.send(f"/queue/{name}", "from stomp", persistent="true", priority="4")
    _, about, body = amqp.channel.basic_get(name, auto_ack=True)
    assert (body, about.delivery_mode, about.priority) == (b"from stomp", 2, 4)
    amqp.out.basic_publish("", name, b"from amqp")
    stomp.subscribe(f"/amq/queue/{name}", ack="client")
    assert stomp.bodies(1) == ["from amqp"]
    amqp.channel.queue_delete(name)
    assert "it was deleted" in stomp.error()[1], "its consumer is told"
    amqp.close()


def test_a_receipt_says_what_became_of_a_record(house: BrokerProcess, name: str) -> None:
    client = joined(house)
    client.subscribe(f"/topic/{name}", id="1")
    client.subscribe("/temp-queue/fates", id="2")
    client.send(f"/topic/{name}", "x", x_headway_receipt="30s", reply_to="/temp-queue/fates", correlation_id="7")
    client.bodies(2)
    ((headers, fate),) = [one for one in client.heard.messages if one[0]["subscription"] == "2"]
    assert headers["correlation-id"] == "7"
    assert (json.loads(fate)["owed"], json.loads(fate)["got"]) == (1, 1)
    client.leave()


def test_patches_are_merged(house: BrokerProcess) -> None:
    client, other = joined(house), joined(house)
    client.subscribe("/topic/keyed.a")
    other.send("/topic/keyed.a", '{"id": 1, "price": 2, "name": "n"}')
    other.send("/topic/keyed.a", '{"id": 1, "price": 3}', merge="true")
    bodies = [json.loads(body) for body in client.bodies(2)]
    assert bodies[1] == {"id": 1, "price": 3, "name": "n"}
    assert "merge" not in client.heard.messages[1][0]
    other.conn.send("/topic/keyed.a", '{"id": 2, "price": 3}', headers={"merge": "true", "receipt": "r"})
    headers, text = other.error()
    assert headers["receipt-id"] == "r"
    assert "the header merge" in text
    client.leave()


# -- wires -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("subprotocol", ["v12.stomp", "v11.stomp", "v10.stomp"])
@pytest.mark.parametrize("opcode", [TEXT, BINARY])
def test_in_a_websocket(house: BrokerProcess, name: str, subprotocol: str, opcode: int) -> None:
    with socket.create_connection(("127.0.0.1", house.ports["web"] or 0), PATIENCE_S) as sock:
        answer = upgrade(sock, "/stomp", "127.0.0.1", subprotocol)
        assert f"Sec-WebSocket-Protocol: {subprotocol}\r\n" in answer
        frames = Frames(answer)
        sock.sendall(frame(CONNECT, opcode))
        send = f"SEND\ndestination:/queue/{name}\n\nhello\0"
        for text in (f"SUBSCRIBE\nid:1\ndestination:/queue/{name}\n\n\0", send[:20], send[20:]):
            sock.sendall(frame(text.encode(), opcode))
        got = b""
        while b"hello\0" not in got:
            frames.feed(sock.recv(65536))
            got += frames.take()
        assert got.startswith(b"CONNECTED\n")


def test_stomp_py_in_a_websocket(house: BrokerProcess, name: str) -> None:
    heard, where = Heard(), [("127.0.0.1", house.ports["web"] or 0)]
    conn = stomp.WSConnection(where, ws_path="/ws", header=SUBPROTOCOL)
    conn.set_listener("heard", heard)
    conn.connect("root", "secret", wait=True)
    conn.subscribe(f"/topic/{name}", id="1", headers={"receipt": "r"})
    until(lambda: heard.receipts == ["r"], what="the receipt")
    for number in range(100):
        conn.send(f"/topic/{name}", f"{number} " + "x" * 2000)
    until(lambda: len(heard.messages) == 100, what=lambda: f"all have come, and not {len(heard.messages)}: "
          f"{heard.errors}, gone: {heard.gone}, {house.call('/v1/consumers')}")
    assert [int(body.partition(" ")[0]) for _, body in heard.messages] == list(range(100))
    conn.disconnect()
    until(lambda: heard.gone, what="the end")


@pytest.mark.parametrize("listener", ["stomps", "autos"])
def test_in_tls(house: BrokerProcess, certificates: Path, name: str, listener: str) -> None:
    context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    plain = socket.create_connection(("127.0.0.1", house.ports[listener] or 0), PATIENCE_S)
    with context.wrap_socket(plain, server_hostname="localhost") as sock:
        sock.sendall(CONNECT + f"SEND\ndestination:/queue/{name}\nreceipt:1\n\nx\0".encode())
        got = b""
        while b"receipt-id:1" not in got:
            got += sock.recv(65536)
        assert got.startswith(b"CONNECTED\n")


# -- permissions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("do", "allowed"),
    [
        ("SEND\ndestination:/topic/mine.a\n", True),
        ("SEND\ndestination:/topic/others.a\n", False),
        ("SEND\ndestination:/queue/others\n", False),
        ("SEND\ndestination:/exchange/amq.fanout\n", False),
        ("SUBSCRIBE\nid:1\ndestination:/topic/mine.>\n", True),
        ("SUBSCRIBE\nid:1\nack:client\ndestination:/topic/mine.>\n", True),
        ("SUBSCRIBE\nid:1\ndestination:/topic/>\n", False),
        ("SUBSCRIBE\nid:1\nack:client\ndestination:/topic/>\n", False),
        ("SUBSCRIBE\nid:1\ndestination:/queue/others\n", False),
        ("SUBSCRIBE\nid:1\ndestination:/temp-queue/own\n", True),
        ("SEND\ndestination:/topic/$SYS.a\n", False),
    ],
)
def test_permissions(house: BrokerProcess, do: str, allowed: bool) -> None:
    raw = Raw(house.ports["stomp"] or 0, CONNECT.replace(b"root", b"alice"))
    raw.sock.sendall(f"{do}receipt:1\n\n\0".encode())
    answer = raw.frame()
    assert answer.startswith(b"RECEIPT" if allowed else b"ERROR"), answer
    assert allowed or (b"receipt-id:1" in answer and raw.frame() == b"")
    raw.close()


@pytest.mark.parametrize("ack", ["auto", "client"])
def test_a_permission_that_ends_is_told(house: BrokerProcess, certificates: Path, ack: str) -> None:
    raw = Raw(house.ports["stomp"] or 0, CONNECT.replace(b"root", b"alice"))
    raw.sock.sendall(f"SUBSCRIBE\nid:1\nack:{ack}\ndestination:/topic/mine.>\nreceipt:1\n\n\0".encode())
    assert raw.frame().startswith(b"RECEIPT")
    given = CONFIG.replace("FOLDER", str(certificates))
    reload(house, given.replace('subscribe = ["mine/#", ', "subscribe = ["))
    answer = raw.frame()
    assert answer.startswith(b"ERROR"), answer
    assert (b"may not be read any more" if ack == "client" else b"mine") in answer
    assert b"receipt-id" not in answer, "no frame of the client's was at fault"
    assert raw.frame() == b""
    raw.close()
    reload(house, given)


# -- slow consumers ----------------------------------------------------------------------------------------------------


def stuck(house: BrokerProcess, topic: str, more: str = "", client: str = "slow") -> Raw:
    """A subscriber with little room, which reads nothing from now on."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", house.ports["stomp"] or 0))
    raw = Raw.__new__(Raw)
    raw.sock, raw.data = sock, b""
    sock.settimeout(PATIENCE_S)
    sock.sendall(CONNECT.replace(b"\n\n", f"\nclient-id:{client}\n\n".encode()) + (
        f"SUBSCRIBE\nid:1\ndestination:{topic}\nreceipt:1\n{more}\n\0".encode()
    ))
    assert raw.frame().startswith(b"CONNECTED")
    assert raw.frame().startswith(b"RECEIPT")
    return raw


@pytest.mark.parametrize("action", ["cut", "delete", "ask"])
def test_a_slow_consumer_is_cut_with_the_sentence_why(house: BrokerProcess, name: str, action: str) -> None:
    """Deleting its subscription would be silence without a lease, and it cannot hear that it is asked to close it."""
    raw, other = stuck(house, f"/topic/{action}.{name}", client=action), joined(house)
    until(lambda: bool(publish(other, f"/topic/{action}.{name}") or house.verdicts(action)), what="a verdict")
    sentence = house.verdicts(action)[0]["text"]
    frames = []
    while frame := raw.frame():
        frames.append(frame)
    assert frames[-1].startswith(b"ERROR\n")
    assert sentence.encode() in frames[-1], "after whole records, the reason"
    assert all(frame.startswith(b"MESSAGE\n") for frame in frames[:-1])
    other.leave()
    raw.close()


def test_a_subscription_that_is_deleted_ends_alone(house: BrokerProcess, name: str) -> None:
    """It learns that by its lease, as with MQTT. Another one of the same connection goes on."""
    there, beside = f"/topic/delete.{name}", f"/topic/beside.{name}"
    raw, other = stuck(house, there, "lease:1h\n"), joined(house)
    raw.sock.sendall(f"SUBSCRIBE\nid:2\ndestination:{beside}\nreceipt:s\n\n\0".encode())
    assert raw.frame().startswith(b"RECEIPT")
    until(lambda: bool(publish(other, there)) or "delete" in str(house.verdicts("slow")[:1]), what="a verdict")
    until(lambda: not house.consumer("slow", f"delete/{name}"), what="the subscription ends")
    other.send(beside, "here")
    while not (frame := raw.frame()).endswith(b"here"):
        assert frame.startswith(b"MESSAGE\n"), "only whole records come"
    raw.sock.sendall(f"SUBSCRIBE\nid:1\ndestination:{there}\nlease:1h\nreceipt:s\n\n\0".encode())
    assert b"x-headway-renewed:false" in raw.frame()
    other.send(there, "again")
    assert raw.frame().endswith(b"again")
    other.leave()
    raw.close()


def test_a_gap_is_told_on_the_next_record(house: BrokerProcess, name: str) -> None:
    raw, other = stuck(house, f"/topic/drop.{name}"), joined(house)
    until(
        lambda: bool(publish(other, f"/topic/drop.{name}")) or "discard" in str(house.verdicts("slow")[:1]),
        what="records are dropped",
    )
    raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    while b"x-headway-gap-records:" not in (got := raw.frame()):
        assert got.startswith(b"MESSAGE\n")
    assert b"x-headway-gap-reason:discarded\n" in got
    other.leave()
    raw.close()


def publish(client: Client, destination: str) -> None:
    for _ in range(20):
        client.conn.send(destination, "x" * 2000)
    client.send(destination, "x")


def test_who_acknowledges_nothing_is_told_so(house: BrokerProcess) -> None:
    client, other = joined(house), joined(house)
    client.subscribe("/queue/acks", ack="client", prefetch_count="1")
    other.send("/queue/acks", "a")
    other.send("/queue/acks", "b")
    assert "acknowledge" in client.error()[1]
    other.leave()
