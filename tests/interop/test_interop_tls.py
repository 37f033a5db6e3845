"""TLS with the clients people use, with and without certificates of their own."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import aio_pika
import kombu
import paho.mqtt.client as paho
import pika
import pytest
from tests.certificates import make, trusting
from tests.interop.conftest import BrokerFactory
from tests.interop.test_amqp_clients import run
from tests.interop.tls_house import MINIMAL, House, ask
from tests.interop.waiting import PATIENCE_S, until

pytest_plugins = ("tests.interop.tls_fixtures",)
KOMBU: Any = kombu


# -- clients ----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("mosquitto_pub") is None, reason="mosquitto's clients are not installed")
@pytest.mark.parametrize("version", ["tlsv1.2", "tlsv1.3"])
def test_mosquitto(house: House, name: str, version: str) -> None:
    common = ["-h", "localhost", "-p", str(house.port()), "--cafile", str(house.ca), "--tls-version", version]
    listening = ["mosquitto_sub", *common, "-i", name, "-t", f"{name}/#", "-C", "3"]
    with subprocess.Popen(listening, stdout=subprocess.PIPE, text=True) as heard:
        until(lambda: ask(house, f"/v1/consumers?client={name}")["consumers"])
        for word in ("one", "two", "three"):
            subprocess.run(["mosquitto_pub", *common, "-t", f"{name}/x", "-m", word, "-q", "1"], check=True, timeout=60)
        said = heard.communicate(timeout=PATIENCE_S)[0]
    assert said.splitlines() == ["one", "two", "three"]


def test_paho_with_messages_of_many_records(house: House, name: str) -> None:
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, name, protocol=paho.MQTTv5)
    client.tls_set(str(house.ca))
    found: list[bytes] = []
    client.on_message = lambda _, __, message: found.append(message.payload)
    client.connect("localhost", house.port())
    ready: list[object] = []
    client.on_subscribe = lambda *said: ready.append(said)
    client.loop_start()
    client.subscribe(f"{name}/#", 1)
    until(lambda: ready)
    payloads = [bytes([number]) * size for number, size in enumerate((1, 16_383, 16_384, 16_385, 70_000, 900_000))]
    for payload in payloads:
        client.publish(f"{name}/x", payload, 1).wait_for_publish(PATIENCE_S)
    until(lambda: len(found) == len(payloads))
    client.disconnect()
    client.loop_stop()
    assert found == payloads


def test_pika(house: House, name: str) -> None:
    options = pika.SSLOptions(house.context(), "localhost")
    parameters = pika.ConnectionParameters("localhost", house.port("amqp"), ssl_options=options)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.queue_declare(name)
        channel.confirm_delivery()
        channel.basic_publish("", name, b"x" * 300_000)
        method, _, body = channel.basic_get(name, auto_ack=True)
        assert method is not None
        assert body == b"x" * 300_000


def test_aio_pika(house: House, name: str) -> None:
    async def story() -> None:
        connection = await aio_pika.connect(
            f"amqps://localhost:{house.port('amqp')}/", ssl_context=house.context(), timeout=PATIENCE_S
        )
        async with connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(name)
            await channel.default_exchange.publish(aio_pika.Message(b"hello"), name)
            message = await queue.get(timeout=PATIENCE_S)
            assert message is not None
            assert message.body == b"hello"

    run(story())


def test_kombu(house: House, name: str) -> None:
    tls = {"ca_certs": str(house.ca), "cert_reqs": ssl.CERT_REQUIRED, "server_hostname": "localhost"}
    with KOMBU.Connection(f"amqps://localhost:{house.port('amqp')}//", ssl=tls) as connection:
        queue = connection.SimpleQueue(name)
        queue.put("hello")
        assert queue.get(timeout=PATIENCE_S).payload == "hello"


# -- clients' certificates --------------------------------------------------------------------------------------------


def test_the_certificate_says_who_it_is(house: House, name: str) -> None:
    with house.raw(name, "known", "alice"):
        pass
    end = until(lambda: ask(house, f"/v1/why/{name}")["ends"])[0]
    assert (end["username"], end["admitted"]) == ("alice", True)


def test_another_user_name_is_refused(house: House, name: str) -> None:
    for username, code in (("alice", 0), ("bob", 0x87)):
        with house.raw(name, "known", "alice", granted=False, username=username, password=b"") as raw:
            assert raw.connack.code == code


def test_external_is_offered_to_those_with_a_certificate(house: House, name: str) -> None:
    options = pika.SSLOptions(house.context("bob"), "localhost")
    for credentials, port in (
        (pika.credentials.ExternalCredentials(), house.port("known-amqp")),
        (pika.PlainCredentials("guest", "guest"), house.port("known-amqp")),
    ):
        about = {"connection_name": name}
        parameters = pika.ConnectionParameters("localhost", port, ssl_options=options, credentials=credentials,
                                               client_properties=about)  # fmt: skip
        pika.BlockingConnection(parameters).close()
        end = until(lambda: ask(house, f"/v1/why/{name}")["ends"])[0]
        assert end["username"] == "bob"
    wrong = pika.PlainCredentials("alice", "")
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(pika.ConnectionParameters("localhost", house.port("known-amqp"), ssl_options=options,
                                                          credentials=wrong))  # fmt: skip


# -- reload -----------------------------------------------------------------------------------------------------------


def test_certificates_change_without_cutting_anybody(start: BrokerFactory, tmp_path: Path, tls_folder: Path) -> None:
    folder = tmp_path
    for one in tls_folder.glob("*.pem"):
        shutil.copy(one, folder)
    broker = start(MINIMAL.format(folder=folder), server={"admin": "https://127.0.0.1:0"})
    admin_port = int(broker.admin.rpartition(":")[2])

    def serial(port: int) -> int:
        context = trusting(folder / "ca.pem")
        sock = socket.create_connection(("localhost", port))
        with context.wrap_socket(sock, server_hostname="localhost") as tls:
            shown = tls.getpeercert()
            assert shown is not None
            return int(str(shown["serialNumber"]), 16)

    house = House(broker, folder, folder / "ca.pem")
    with house.raw("stays") as raw:
        raw.subscribed("t/#")
        before = serial(broker.port), serial(admin_port)
        (folder / "server-key.pem").write_text("nonsense")
        broker.signal(signal.SIGHUP)
        line = house.says("reload: nothing was changed")
        assert re.search(r"listeners\.mqtt\.tls\.key|server\.tls\.key", line)
        assert serial(broker.port) == before[0]
        make(folder, "server", ca="ca", hosts=("localhost",))
        broker.signal(signal.SIGHUP)
        until(lambda: serial(broker.port) != before[0])
        assert serial(admin_port) != before[1]
        raw.published("t/x", b"still here")
        assert raw.message().payload == b"still here"
