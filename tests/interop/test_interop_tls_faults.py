"""TLS with clients that nobody would want: each costs the broker one clear line of its log."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.raw import Raw
from tests.interop.tls_house import House, ask
from tests.interop.waiting import PATIENCE_S, until

pytest_plugins = ("tests.interop.tls_fixtures",)
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


class Fault(NamedTuple):
    """A client whose handshake fails."""

    words: str
    """In the broker's log."""
    listener: str = "mqtt"
    user: str | None = None
    """Whose certificate it shows."""
    host: str = "localhost"
    trusts: bool = True
    ciphers: str = ""


FAULTS = {
    "it has no CA": Fault("refused the broker's certificate: it does not know the CA that signed it", trusts=False),
    "it asks for another host": Fault("it is not for the host name that the client asked for", host="broker.example"),
    "the broker's has expired": Fault("refused the broker's certificate: it has expired", "expired"),
    "it shows none": Fault("not_authorized: the client shows no certificate, and this listener requires one", "known"),
    "its own has expired": Fault("not_authorized: the client's certificate was refused: certificate has expired",
                                 "known", "late"),
    "its own is of another CA": Fault("the client's certificate was refused: self-signed", "known", "stranger"),
    "its own is a server's": Fault("certificate was refused: unsuitable certificate purpose", "known", "server"),
    "its own names nobody": Fault("not_authorized: the client's certificate has no common name", "known", "nobody"),
}  # fmt: skip


def fault(house: House, one: Fault, context: ssl.SSLContext) -> None:
    """Has the handshake fail, and looks for the one line that tells of it."""
    with socket.create_connection(("127.0.0.1", house.port(one.listener)), PATIENCE_S) as sock:
        address = "{}:{}".format(*sock.getsockname())
        with suppress(OSError), context.wrap_socket(sock, server_hostname=one.host) as tls:
            assert tls.recv(100) == b""  # a client of TLS 1.3 has nothing more to wait for, and learns it here
    house.says(address)
    lines = [line for line in house.broker.log.read_text().splitlines() if address in line]
    assert [one.words in line for line in lines] == [True], lines


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
@pytest.mark.parametrize("one", FAULTS.values(), ids=FAULTS)
def test_one_clear_line(house: House, one: Fault, version: ssl.TLSVersion) -> None:
    context = house.context(one.user) if one.trusts else ssl.create_default_context()
    context.minimum_version = context.maximum_version = version
    fault(house, one, context)


def test_nothing_in_common(house: House) -> None:
    context = house.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-RSA-AES128-GCM-SHA256")
    fault(house, Fault("the client and the broker have no cipher or signature in common"), context)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_old_version(house: House) -> None:
    context = house.context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    fault(house, Fault("the client offers no version of TLS that is spoken here (1.2 and 1.3)"), context)


def test_plain_bytes_on_a_tls_port(house: House) -> None:
    with pytest.raises(AssertionError):
        Raw(house.port("few"))
    line = house.says("the client did not begin with TLS")
    assert f"it has to use mqtts://127.0.0.1:{house.port('few')}" in line
    assert line.count("protocol_error") == 1
    ends = ask(house, "/v1/why/127.0.0.1")["ends"]
    assert any("did not begin with TLS" in end["text"] for end in ends), "those who have not said who they are"


@pytest.mark.parametrize(("listener", "words"), [
    ("plain", "the client speaks TLS, and this listener does not"),
    ("plain-amqp", "the client speaks TLS, and this listener does not"),
    ("plain-web", "this is TLS"),
])  # fmt: skip
def test_tls_on_a_plain_port(house: House, listener: str, words: str) -> None:
    fault(house, Fault(words, listener), house.context())


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


def test_a_handshake_has_its_time(start: BrokerFactory, tls_folder: Path) -> None:
    config = f"""
[listeners.mqtt]
url = "mqtts://127.0.0.1:0"
connect_timeout = "500ms"
[listeners.mqtt.tls]
certificate = "{tls_folder}/server.pem"
key = "{tls_folder}/server-key.pem"
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
