"""TLS with the clients people use, and with some that nobody would want."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import aio_pika
import kombu
import paho.mqtt.client as paho
import pika
import pytest
from tests.certificates import make, trusting
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.test_amqp_clients import run
from tests.interop.waiting import PATIENCE_S, until

from headway.client.address import read_admin_url
from headway.pipeline.source.broker_client import BrokerClient
from headway.pipeline.source.errors import SourceError

KOMBU: Any = kombu
CONFIG = """
[server.tls]
certificate = "{folder}/server.pem"
key = "{folder}/server-key.pem"
[listeners.mqtt]
url = "mqtts://127.0.0.1:0"
[listeners.mqtt.tls]
certificate = "{folder}/server.pem"
key = "{folder}/server-key.pem"
[[listeners.mqtt.tls.also]]
certificate = "{folder}/other.pem"
key = "{folder}/other-key.pem"
[listeners.amqp]
url = "amqps://127.0.0.1:0"
[listeners.amqp.tls]
certificate = "{folder}/rsa.pem"
key = "{folder}/rsa-key.pem"
[listeners.known]
url = "mqtts://127.0.0.1:0"
[listeners.known.tls]
certificate = "{folder}/server.pem"
key = "{folder}/server-key.pem"
ca = "{folder}/ca.pem"
verify = "required"
[listeners.known-amqp]
url = "amqps://127.0.0.1:0"
[listeners.known-amqp.tls]
certificate = "{folder}/server.pem"
key = "{folder}/server-key.pem"
ca = "{folder}/ca.pem"
verify = "required"
[listeners.few]
url = "mqtts://127.0.0.1:0"
handshakes_max = 50
[listeners.few.tls]
certificate = "{folder}/server.pem"
key = "{folder}/server-key.pem"
[listeners.plain]
url = "mqtt://127.0.0.1:0"
"""


class House(NamedTuple):
    broker: BrokerProcess
    folder: Path
    ca: Path

    def port(self, listener: str = "mqtt") -> int:
        found = self.broker.ports[listener]
        assert found is not None
        return found

    def context(self, user: str | None = None) -> ssl.SSLContext:
        pair = (self.folder / f"{user}.pem", self.folder / f"{user}-key.pem") if user else None
        return trusting(self.ca, pair)

    def raw(self, name: str = "", listener: str = "mqtt", user: str | None = None, **more: Any) -> Raw:
        return Raw(self.port(listener), name, tls=self.context(user), **more)

    def says(self, words: str) -> str:
        """Waits for a line of the log."""
        def line() -> str:
            return next((one for one in self.broker.log.read_text().splitlines() if words in one), "")

        return until(line, what=f"the log says {words!r}")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certs")
    for user in ("alice", "bob"):
        subprocess.run([sys.executable, "-m", "headway", "certs", str(folder), "--user", user], check=True,
                       capture_output=True)  # fmt: skip
    make(folder, "rsa", ca="ca", hosts=("localhost",), with_rsa=True)
    make(folder, "other", ca="ca", hosts=("other.example", "*.wild.example"))
    make(folder, "late", ca="ca", ends=timedelta(days=-2))
    make(folder, "nobody", ca="ca", common_name=None)
    make(folder, "stranger")
    return folder


@pytest.fixture(scope="module")
def house(start: BrokerFactory, certificates: Path) -> House:
    config = CONFIG.format(folder=certificates)
    return House(start(config, server={"admin": "https://127.0.0.1:0"}), certificates, certificates / "ca.pem")


def ask(house: House, path: str, user: str | None = None) -> Any:
    url = house.broker.admin.replace("127.0.0.1", "localhost") + path
    with urllib.request.urlopen(url, timeout=PATIENCE_S, context=house.context(user)) as answer:
        return json.load(answer)


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


@pytest.mark.parametrize(("user", "words"), [
    (None, "the client shows no certificate, and this listener requires one"),
    ("late", "the client's certificate was refused: certificate has expired"),
    ("stranger", "the client's certificate was refused: self-signed certificate"),
    ("nobody", "the client's certificate has no common name to be its user name"),
])  # fmt: skip
def test_certificates_that_are_refused(house: House, user: str | None, words: str) -> None:
    with pytest.raises((AssertionError, OSError)):
        house.raw("x", "known", user)
    assert "not_authorized" in house.says(words)


# -- openssl ----------------------------------------------------------------------------------------------------------


def s_client(house: House, *more: str, listener: str = "mqtt", said: str = "") -> str:
    command = ["openssl", "s_client", "-connect", f"localhost:{house.port(listener)}", "-CAfile", str(house.ca), *more]
    done = subprocess.run(command, input=said, capture_output=True, text=True, timeout=PATIENCE_S)
    return done.stdout + done.stderr


VERSIONS = {"-tls1_3": "TLSv1.3", "-tls1_2": "TLSv1.2", "-tls1_1": None, "-tls1": None}
CIPHERS = {
    "ECDHE-ECDSA-AES256-GCM-SHA384": True, "ECDHE-ECDSA-CHACHA20-POLY1305": True, "AES128-SHA": False,
    "NULL": False, "aNULL": False, "DES-CBC3-SHA": False, "RC4-SHA": False, "EXPORT": False,
}  # fmt: skip


@pytest.mark.parametrize(("version", "spoken"), VERSIONS.items())
def test_versions(house: House, version: str, spoken: str | None) -> None:
    said = s_client(house, version, "-cipher", "ALL:@SECLEVEL=0")
    if spoken is None:
        assert "New, (NONE), Cipher is (NONE)" in said or "no protocols available" in said
    else:
        assert f"New, {spoken}, Cipher is" in said
        assert "Verify return code: 0 (ok)" in said


@pytest.mark.parametrize(("cipher", "spoken"), CIPHERS.items())
def test_ciphers(house: House, cipher: str, spoken: bool) -> None:
    said = s_client(house, "-tls1_2", "-cipher", f"{cipher}:@SECLEVEL=0")
    assert (f"Cipher is {cipher}" in said) == spoken


def test_alpn(house: House) -> None:
    assert "ALPN protocol: mqtt" in s_client(house, "-alpn", "mqtt")
    assert "ALPN protocol: amqp" in s_client(house, "-alpn", "amqp", listener="amqp")
    assert "No ALPN negotiated" in s_client(house, "-alpn", "nobody-speaks-this")


@pytest.mark.parametrize(("asked", "shown"), [
    ("other.example", "CN = other"), ("a.wild.example", "CN = other"), ("localhost", "CN = headway"),
    ("unheard.of", "CN = headway"),
])  # fmt: skip
def test_sni(house: House, asked: str, shown: str) -> None:
    assert f"subject={shown}" in s_client(house, "-servername", asked)


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_session_tickets(house: House, tmp_path: Path, version: str) -> None:
    """The ticket of TLS 1.3 comes behind the handshake, so both sides say something first."""
    context = house.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_3 if version == "-tls1_3" else ssl.TLSVersion.TLSv1_2
    session = None
    for reused in (False, True):
        with socket.create_connection(("localhost", house.port())) as sock:
            tls = context.wrap_socket(sock, server_hostname="localhost", session=session)
            tls.sendall(b"\xc0\x00")  # PINGREQ before CONNECT: the broker ends it
            while tls.recv(100):
                pass
            assert tls.session_reused is reused
            session = tls.session


def test_renegotiation_is_off(house: House) -> None:
    command = ["openssl", "s_client", "-connect", f"localhost:{house.port()}", "-CAfile", str(house.ca), "-tls1_2"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as asking:
        assert asking.stdin is not None
        assert asking.stdout is not None
        for line in asking.stdout:
            if b"Verify return code" in line:
                break
        asking.stdin.write(b"R\n")
        asking.stdin.flush()
        assert b"no renegotiation" in asking.communicate(timeout=PATIENCE_S)[0]


# -- bad input --------------------------------------------------------------------------------------------------------


def test_plain_bytes_on_a_tls_port(house: House) -> None:
    with pytest.raises(AssertionError):
        Raw(house.port("few"))
    line = house.says("the client did not begin with TLS")
    assert f"it has to use mqtts://127.0.0.1:{house.port('few')}" in line
    assert line.count("protocol_error") == 1
    ends = ask(house, "/v1/why/127.0.0.1")["ends"]
    assert any("did not begin with TLS" in end["text"] for end in ends), "those who have not said who they are"


def test_tls_on_a_plain_port(house: House) -> None:
    with pytest.raises(OSError):
        house.raw(listener="plain")
    assert "[listeners.plain.tls]" in house.says("the client speaks TLS, and this listener does not")


@pytest.mark.parametrize(("said", "words"), [
    (b"\x16\x03", "the client left before the TLS handshake was done"),
    (b"\x16\x03\x01\x02\x00" + b"\x01\x00\x01\xfc\x03\x03" + b"a" * 20, "the client left before"),
    (b"\x16\x03\x01\xff\xff" + b"a" * 40_000, "the client sent something that is not TLS"),
    (b"\x16\x03\x01\x00\x05hello", "TLS"),
    (b"GET / HTTP/1.1\r\n\r\n", "the client did not begin with TLS"),
])  # fmt: skip
def test_handshakes_that_lead_nowhere(house: House, said: bytes, words: str) -> None:
    with socket.create_connection(("127.0.0.1", house.port())) as sock:
        here = sock.getsockname()[1]
        with suppress(OSError):  # the broker may have ended it before it has been sent, or closed, to the end
            sock.sendall(said)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(1000):
                pass
    assert words in house.says(f"127.0.0.1:{here})")


def test_a_hello_byte_by_byte_is_a_hello(house: House, name: str) -> None:
    context, incoming, outgoing = house.context(), ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(("127.0.0.1", house.port())) as sock:
        sock.settimeout(PATIENCE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                for byte in outgoing.read():
                    sock.sendall(bytes([byte]))
                incoming.write(sock.recv(100_000))
        for byte in outgoing.read():
            sock.sendall(bytes([byte]))
        tls.write(b"\x10\x0d\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x00")
        sock.sendall(outgoing.read())
        answer = b""
        while not answer:
            incoming.write(sock.recv(1000))
            try:
                answer = tls.read(100)
            except ssl.SSLWantReadError:
                continue
        assert answer[:1] == b"\x20"


def test_slow_handshakes_are_not_felt(house: House, name: str) -> None:
    """3,000 of them: the healthy come in all the same, and those who come first have to go first."""
    slow = []
    try:
        for _ in range(3_000):
            sock = socket.create_connection(("127.0.0.1", house.port("few")))
            sock.sendall(b"\x16\x03\x01")
            slow.append(sock)
            if len(slow) % 1_000 == 0:
                with house.raw(f"{name}-{len(slow)}", "few") as raw:
                    raw.subscribed(f"{name}/#").published(f"{name}/x", b"here")
                    assert raw.message().payload == b"here"
        house.says("the slowest of 50 TLS handshakes under way")
        slow[0].settimeout(PATIENCE_S)
        with suppress(ConnectionResetError):
            assert slow[0].recv(1) == b"", "the first one has been ended"
    finally:
        for sock in slow:
            sock.close()


def test_a_handshake_has_its_time(start: BrokerFactory, certificates: Path) -> None:
    config = f"""
[listeners.mqtt]
url = "mqtts://127.0.0.1:0"
connect_timeout = "500ms"
[listeners.mqtt.tls]
certificate = "{certificates}/server.pem"
key = "{certificates}/server-key.pem"
"""
    broker = start(config)
    with socket.create_connection(("127.0.0.1", broker.port)) as sock:
        sock.settimeout(PATIENCE_S)
        sock.sendall(b"\x16")
        with suppress(ConnectionResetError):
            assert sock.recv(1) == b""
    until(lambda: "did not finish the TLS handshake within" in broker.log.read_text())


def test_half_closed(house: House, name: str) -> None:
    """Whoever says no more is gone, as without TLS."""
    raw = house.raw(name)
    assert isinstance(raw.sock, ssl.SSLSocket)
    socket.socket.shutdown(raw.sock, socket.SHUT_WR)
    raw.wait_end()
    assert until(lambda: ask(house, f"/v1/why/{name}")["ends"])[0]["reason"] == "client_gone"


# -- consumers --------------------------------------------------------------------------------------------------------


class TestSlow:
    CONFIG: ClassVar[str] = """
[pool]
memory = "4MB"
disk = "200MB"
disk_path = "{folder}/spill"
[listeners.mqtt]
url = "mqtts://127.0.0.1:0"
[listeners.mqtt.tls]
certificate = "{folder}/server.pem"
key = "{folder}/server-key.pem"
[listeners.plain]
url = "mqtt://127.0.0.1:0"
[[policy]]
name = "cut"
topics = ["cut/#"]
[[policy.rule]]
when = {{ blocked_time = "1s" }}
then = "disconnect"
[[policy]]
name = "all"
[[policy.rule]]
when = {{ blocked_time = "2s" }}
then = "notify"
"""

    @pytest.fixture
    def slow(self, tmp_path: Path, certificates: Path) -> Iterator[House]:
        broker = BrokerProcess(tmp_path, self.CONFIG.format(folder=certificates))
        yield House(broker, certificates, certificates / "ca.pem")
        broker.stop()

    def test_what_waits_goes_to_disk_and_comes_back_whole(self, slow: House, name: str) -> None:
        """Records are read from files and enciphered."""
        payload = [bytes([number % 256]) * 20_000 for number in range(1_000)]
        with slow.raw(name, receive_buffer=20_000) as away, Raw(slow.port("plain")) as writer:
            away.subscribed("far/#")
            for at in range(0, len(payload), 50):
                writer.publish_all("far/x", payload[at : at + 50])
            writer.published("far/end", b"end")
            until(lambda: slow.broker.get("/v1/broker")["pools"][0]["disk_bytes"] > 1_000_000)
            assert slow.broker.consumer(name)["lag_records"] > 0
            assert away.payloads(len(payload) + 1) == [*payload, b"end"]

    def test_a_stuck_one_is_found_and_told(self, slow: House, name: str) -> None:
        with slow.raw(name, receive_buffer=20_000) as stuck, Raw(slow.port("plain")) as writer:
            stuck.subscribed("cut/#")
            writer.publish_all("cut/x", [b"x" * 10_000] * 400)
            verdict = until(lambda: slow.broker.verdicts(name))[0]
            assert verdict["reason"] == "blocked"
            assert verdict["cause"] == "application"
            assert stuck.wait_disconnect().code == 0x97
            assert stuck.inbox, "and what it had been sent before"

    def test_a_slow_reader_is_no_stuck_one(self, slow: House, name: str) -> None:
        """It reads some records of TLS at a time, and its progress is what it has read."""
        with slow.raw(name, receive_buffer=20_000) as reader, Raw(slow.port("plain")) as writer:
            reader.subscribed("slow/#")
            writer.publish_all("slow/x", [b"y" * 1_000] * 4_000)
            until(lambda: slow.broker.consumer(name).get("lag_records", 0) > 0)
            deadline = time.monotonic() + 6
            while time.monotonic() < deadline and not reader.ended:
                reader.sock.recv(8_000)
                until(lambda: True)
                time.sleep(0.05)  # its pace
            assert not [one for one in slow.broker.verdicts(name) if one["reason"] == "blocked"]


# -- reload -----------------------------------------------------------------------------------------------------------


def test_certificates_change_without_cutting_anybody(start: BrokerFactory, tmp_path: Path, certificates: Path) -> None:
    folder = tmp_path
    for one in certificates.glob("*.pem"):
        shutil.copy(one, folder)
    config = f"""
[server.tls]
certificate = "{folder}/server.pem"
key = "{folder}/server-key.pem"
[listeners.mqtt]
url = "mqtts://127.0.0.1:0"
[listeners.mqtt.tls]
certificate = "{folder}/server.pem"
key = "{folder}/server-key.pem"
"""
    broker = start(config, server={"admin": "https://127.0.0.1:0"})
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


# -- the admin API ----------------------------------------------------------------------------------------------------


def headway(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "headway", *arguments], capture_output=True, text=True,
                          timeout=PATIENCE_S, env=os.environ | environment)  # fmt: skip


def test_top_and_why_over_https(house: House, name: str) -> None:
    url = house.broker.admin.replace("127.0.0.1", "localhost")
    with house.raw(name) as raw:
        raw.subscribed(f"{name}/#")
        done = headway("top", "--json", "--admin", url, "--ca", str(house.ca))
        assert name in {row["client"] for row in json.loads(done.stdout)["consumers"]}, done.stderr
    assert headway("top", "--once", "--admin", f"{url}?ca={house.ca}").returncode == 0
    assert headway("top", "--once", "--admin", url, HEADWAY_CA=str(house.ca)).returncode == 0
    refused = headway("top", "--once", "--admin", url)
    assert refused.returncode == 2
    assert "is not trusted: " in refused.stderr
    assert "--ca FILE" in refused.stderr
    missing = headway("top", "--once", "--admin", url, "--ca", "/nowhere.pem")
    assert (missing.returncode, "/nowhere.pem cannot be read" in missing.stderr) == (2, True)


def test_the_source_of_spark_over_https(house: House) -> None:
    url = read_admin_url(f"{house.broker.admin.replace('127.0.0.1', 'localhost')}?ca={house.ca}", {})
    with pytest.raises(SourceError, match=r"record|journal"):
        BrokerClient(url, 5.0).offsets("nothing/#")
    with pytest.raises(SourceError, match="is not trusted"):
        BrokerClient(url.partition("?")[0], 5.0).offsets("nothing/#")


def test_a_wrong_host_name(house: House) -> None:
    url = house.broker.admin.replace("127.0.0.1", "127.0.0.2")
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        urllib.request.urlopen(url + "/v1/broker", timeout=5, context=house.context())


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl(house: House) -> None:
    url = house.broker.admin.replace("127.0.0.1", "localhost") + "/metrics"
    done = subprocess.run(["curl", "-s", "-v", "--cacert", str(house.ca), url], capture_output=True, text=True)
    assert "headway_" in done.stdout
    assert "http/1.1" in done.stderr
    for bad in (["--tls-max", "1.1", "-k"], []):
        assert subprocess.run(["curl", "-s", *bad, url], capture_output=True).returncode != 0


def test_many_at_once_and_large_answers(house: House) -> None:
    """The transport under aiohttp: keep-alive, bodies in parts."""
    port = int(house.broker.admin.rpartition(":")[2])
    ones = [http.client.HTTPSConnection("localhost", port, context=house.context(), timeout=60) for _ in range(20)]
    for _ in range(3):
        for one in ones:
            one.request("GET", "/metrics")
        assert all(b"headway_" in one.getresponse().read() for one in ones)
    body = json.dumps({"x": "y" * 200_000})
    ones[0].request("POST", "/v1/preview", body)
    answer = ones[0].getresponse()
    assert (answer.status, bool(answer.read())) == (400, True)
    for one in ones:
        one.close()


def test_plain_http_on_the_https_port(house: House) -> None:
    with pytest.raises((urllib.error.URLError, ConnectionError, OSError)):
        urllib.request.urlopen(house.broker.admin.replace("https", "http") + "/v1/broker", timeout=PATIENCE_S)
    assert "(admin, " in house.says("it has to use https://")
