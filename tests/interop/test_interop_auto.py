"""One port for all protocols: the first bytes of a connection say which one it speaks."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import paho.mqtt.client as mqtt
import pika
import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.waiting import PATIENCE_S, until


@pytest.fixture(scope="module")
def auto(start: BrokerFactory) -> Iterator[BrokerProcess]:
    broker = start('[listeners.auto]\nurl = "auto://127.0.0.1:0"\nconnect_timeout = "500ms"\n')
    yield broker
    broker.stop()


def test_clients_of_several_protocols_meet_at_one_port(auto: BrokerProcess) -> None:
    got: list[bytes] = []
    one = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "one", protocol=mqtt.MQTTv5)
    one.on_connect = lambda *_: one.subscribe("auto/a", 1)
    ready: list[int] = []
    one.on_subscribe = lambda *_: ready.append(1)
    one.on_message = lambda _client, _data, message: got.append(message.payload)
    one.connect("127.0.0.1", auto.port)
    one.loop_start()
    until(lambda: bool(ready), PATIENCE_S, "SUBACK")
    other = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", auto.port))
    other.channel().basic_publish("amq.topic", "auto.a", b"hello")
    until(lambda: got == [b"hello"], PATIENCE_S, "the message comes")
    other.close()
    one.disconnect()
    one.loop_stop()


def test_first_bytes_of_nobody_end_the_connection_with_one_line(auto: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", auto.port), PATIENCE_S) as sock:
        sock.sendall(b"GET /nobody HTTP/1.1\r\n\r\n")
        assert sock.recv(100) == b""
    until(lambda: auto.log.read_text().count("GET /nobody") == 1, PATIENCE_S, "the log says so")
    assert "are of no protocol that is spoken here" in auto.log.read_text()


def test_a_client_that_says_too_little_has_the_time_to_log_in_and_no_more(auto: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", auto.port), PATIENCE_S) as sock:
        sock.sendall(b"AM")
        assert sock.recv(100) == b""
    until(lambda: "the client did not log in within" in auto.log.read_text(), PATIENCE_S, "the log says so")
