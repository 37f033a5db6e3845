"""Limits per user, with real clients: each is told which limit it is, in its protocol's words."""

from __future__ import annotations

import re
import signal
import socket
import struct
import time
from pathlib import Path

import pika
import pika.exceptions
import pytest
from tests.interop.amqp_pika import Pika
from tests.interop.conftest import BrokerFactory
from tests.interop.pahos import Paho, properties
from tests.interop.permitted import SECRET
from tests.interop.process import BrokerProcess
from tests.interop.test_interop_writers import arrow, publish, put, stage
from tests.interop.waiting import until
from tests.passwords import cheap_hash

USERS = "[auth.users]\n" + "".join(f'{name} = "{cheap_hash(SECRET)}"\n' for name in ("ann", "bob", "root"))
LISTENERS = """
[listeners.mqtt]
url = "mqtt://127.0.0.1:0"
[listeners.amqp]
url = "amqp://127.0.0.1:0"
"""
LIMITS = """
[[limit]]
user = "ann"
connections = 3
subscriptions = 2
[[limit]]
user = "bob"
publish_rate = 200
"""


@pytest.fixture(scope="module")
def limited(start: BrokerFactory) -> BrokerProcess:
    broker = start(LISTENERS + USERS + LIMITS)
    broker.login = f"root:{SECRET}"
    return broker


def paho(broker: BrokerProcess, user: str, client: str, version: int = 5) -> Paho:
    return Paho(broker.ports["mqtt"], client, version, user=(user, SECRET))


def rabbit(broker: BrokerProcess, user: str) -> Pika:
    return Pika(broker.ports["amqp"], credentials=pika.PlainCredentials(user, SECRET))


def test_connections_and_subscriptions_of_a_user_over_all_protocols(limited: BrokerProcess) -> None:
    first, second = paho(limited, "ann", "a1"), paho(limited, "ann", "a2", 4)
    third = rabbit(limited, "ann")
    for version in (4, 5):
        refused = paho(limited, "ann", "a3", version)
        assert refused.connack.value == {5: 0x97, 4: 0x88}[version]  # paho has 3.1.1's 3 as 0x88
        if version == 5:
            said = refused.connect_properties.ReasonString
            assert said == (
                "user ann has 3 connections, and limit[1].connections permits 3: close one, or have that limit raised"
            )
        refused.close()
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match=r"530.*limit\[1\]\.connections permits 3"):
        rabbit(limited, "ann")
    assert [code.value for code in first.subscribe([("a", 0), ("b", 0), ("c", 0)])] == [0, 0, 0x97]
    assert [code.value for code in second.subscribe([("a", 0)])] == [0x80]
    queue = third.channel.queue_declare("", exclusive=True).method.queue
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=r"limit\[1\]\.subscriptions permits 2") as closed:
        third.channel.basic_consume(queue, lambda *_: None)
    assert closed.value.reply_code == 506
    other = paho(limited, "bob", "b1")
    assert other.connack.value == 0
    for client in (first, other, third):
        client.close()
    until(lambda: paho_is_let_in(limited), what="room for another connection")
    second.close()
    _, page = limited.call("/metrics")
    assert b'headway_user_limits_reached_total{limit="connections"}' in page


def paho_is_let_in(broker: BrokerProcess) -> bool:
    client = paho(broker, "ann", "a4")
    client.close()
    return bool(client.connack.value == 0)


@pytest.mark.parametrize("protocol", ["mqtt", "amqp"])
def test_a_publisher_waits_and_loses_nothing(limited: BrokerProcess, protocol: str) -> None:
    """At least as long as the rate says; a limit from above would be a measurement."""
    reader = paho(limited, "root", f"reader-{protocol}")
    reader.subscribe(f"rate/{protocol}", 1)
    began = time.monotonic()
    if protocol == "mqtt":
        writer = paho(limited, "bob", "b2")
        for number in range(600):
            writer.client.publish(f"rate/{protocol}", b"%d" % number, 1)
        why = "user bob may publish 200 records a second (limit[2])"
        until(lambda: why in limited.publisher("b2").get("waits_for", ""), what="the publisher waits")
    else:
        rabbit_writer = rabbit(limited, "bob")
        for number in range(600):
            rabbit_writer.out.basic_publish("amq.topic", f"rate.{protocol}", b"%d" % number)
    got = reader.wait(600, 60)
    assert time.monotonic() - began > 1.5  # three seconds, of which one was saved
    assert [message.payload for message in got] == [b"%d" % number for number in range(600)]
    reader.close()


def test_clients_that_die_while_their_login_is_checked_leave_nothing(start: BrokerFactory) -> None:
    broker = start(LISTENERS + USERS + LIMITS)
    broker.login = f"root:{SECRET}"
    paho(broker, "root", "first").close()

    def clients_bytes() -> int:
        return int(broker.get("/v1/broker")["pools"][0]["clients_bytes"])

    for number in range(24):
        with socket.create_connection(("127.0.0.1", broker.ports["mqtt"])) as sock:
            fields = [f"dies-{number}", "ann", SECRET if number % 12 else "wrong"]
            body = b"\0\4MQTT\5\xc2\0\x3c\0" + b"".join(len(one).to_bytes(2, "big") + one.encode() for one in fields)
            sock.sendall(b"\x10" + bytes([len(body)]) + body)
            if number % 2:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    until(lambda: paho_is_let_in(broker) and clients_bytes() == 0, what="nobody is left")
    there = [paho(broker, "ann", f"a{number}") for number in range(4)]
    assert [client.connack.value for client in there] == [0, 0, 0, 0x97]
    for client in there:
        client.close()
    until(lambda: clients_bytes() == 0, what="nothing is left")


def test_a_writer_over_http_keeps_to_the_rate_of_its_user(start: BrokerFactory, tmp_path: Path) -> None:
    more = LISTENERS + USERS + LIMITS + '[auth.admin]\nchange = ["bob"]\n'
    broker = start(f'[journal]\npath = "{tmp_path}"\n' + more)
    broker.login = f"bob:{SECRET}"
    rows = [(f"rate/{number % 2}", None, None, b"%d" % number) for number in range(600)]
    began = time.monotonic()
    part = stage(broker, "w", arrow(rows))
    put(broker, "w", 0, [part], 0)
    told = "user bob may publish 200 records a second (limit[2])"
    until(lambda: told in str(broker.publisher("w")), what="the writer waits")  # asked once: soon it goes on
    assert publish(broker, "w", 0, part)["rows"] == 600
    assert time.monotonic() - began > 1.5  # three seconds, of which one was saved


def test_what_a_user_has_from_before_a_restart_counts(start: BrokerFactory, tmp_path: Path) -> None:
    config = f'[journal]\npath = "{tmp_path}"\n' + LISTENERS + USERS + LIMITS
    broker = start(config)
    forever = properties("CONNECT", SessionExpiryInterval=1000)
    kept = Paho(broker.ports["mqtt"], "kept", 5, user=("ann", SECRET), connect=forever)
    kept.subscribe([("a", 1), ("b", 1)])
    kept.close()
    broker.stop()
    broker = start(config)
    other = paho(broker, "ann", "other")
    assert [code.value for code in other.subscribe([("c", 0)])] == [0x97]
    other.close()


def test_a_reload_lifts_a_limit(start: BrokerFactory) -> None:
    broker = start(LISTENERS + USERS + LIMITS)
    broker.login = f"root:{SECRET}"
    first = paho(broker, "ann", "a1")
    assert [code.value for code in first.subscribe([("a", 0), ("b", 0), ("c", 0)])] == [0, 0, 0x97]
    broker.write(LISTENERS + USERS + LIMITS.replace("subscriptions = 2", "subscriptions = 3"))
    broker.signal(signal.SIGHUP)
    until(lambda: first.subscribe([("c", 0)])[0].value == 0, what="the limit is lifted")
    assert [code.value for code in first.subscribe([("d", 0)])] == [0x97]
    first.close()


def test_bytes_in_flight_of_a_user_over_mqtt_and_amqp(start: BrokerFactory) -> None:
    """One client that acknowledges nothing takes up the limit; another of that user gets more when it is gone."""
    broker = start(LISTENERS + USERS + '[[limit]]\nuser = "ann"\nin_flight_bytes = "20KB"\n')
    broker.login = f"root:{SECRET}"
    hog, source = rabbit(broker, "ann"), paho(broker, "bob", "source")
    queue = hog.bound("amq.topic", "t")
    hog.consume(queue, prefetch=0)
    quick = paho(broker, "ann", "quick")
    quick.subscribe("t", 1)
    for number in range(200):
        source.client.publish("t", b"%d".ljust(1_000) % number, 1)
    waits_for = r"user ann has 2\d(\.\d)? kB in flight, and limit\[1\]\.in_flight_bytes permits 20 kB"
    until(lambda: hog.turn() and re.fullmatch(waits_for, broker.consumer("quick")["waits_for"]), what="all is taken up")
    assert len(hog.got) < 25
    tags = [one.tag for one in hog.got]
    for tag in tags:
        hog.channel.basic_ack(tag)
    seen = len(tags)
    until(lambda: len(hog.turn()) > seen, what="who acknowledges gets more")
    hog.close()
    assert [int(one.payload) for one in quick.wait(200)] == list(range(200))
    until(lambda: broker.consumer("quick")["in_flight"] == 0, what="all is acknowledged")
    assert broker.consumer("quick")["waits_for"] == ""
    assert broker.verdicts("quick") == []
    _, page = broker.call("/metrics")
    assert b'headway_user_limits_reached_total{limit="in_flight_bytes"}' in page
    for client in (quick, source):
        client.close()
