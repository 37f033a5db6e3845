"""Messages that are compressed once for all clients of a WebSocket listener, also where each client has a cipher of its
own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.certificates import trusting
from tests.interop.conftest import BrokerFactory
from tests.interop.process import LISTENER, BrokerProcess
from tests.interop.raw import Raw
from tests.interop.waiting import until
from tests.interop.web import DeflatedRaw, WebRaw

CONFIG = LISTENER + """
[listeners.web]
url = "ws://127.0.0.1:0"
compression = true
[listeners.secure]
url = "wss://127.0.0.1:0"
compression = true
[listeners.secure.tls]
certificate = "{folder}/server.pem"
key = "{folder}/server-key.pem"
[[policy]]
name = "cut"
topics = ["cut/#"]
[[policy.rule]]
when = {{ blocked_time = "300ms" }}
then = "disconnect"
[[policy]]
name = "oldest"
topics = ["oldest/#"]
[[policy.rule]]
when = {{ lag_records = 100 }}
then = {{ action = "discard", which = "oldest", keep_records = 1 }}
"""
Web = Callable[..., DeflatedRaw]
"""Connects a client that takes compressed messages."""


@pytest.fixture(scope="module")
def house(start: BrokerFactory, certificates: Path) -> BrokerProcess:
    return start(CONFIG.format(folder=certificates), server={"send_buffer": "16KiB"})


@pytest.fixture(params=["web", "secure"], ids=["ws", "wss"])
def web(house: BrokerProcess, certificates: Path, request: pytest.FixtureRequest) -> Web:
    more = {} if request.param == "web" else {"tls": trusting(certificates / "ca.pem")}
    return partial(DeflatedRaw, house.ports[request.param], **more)


def text(number: int) -> bytes:
    """A thousand bytes as feeds have them: much of it is the same each time."""
    return (b'{"number": %06d, "state": "on its way"}' % number).ljust(1000, b" ")


def flood(port: int, topic: str, count: int) -> None:
    with Raw(port, f"flood-{topic}") as writer:
        writer.publish_all(topic, [text(number) for number in range(count)])
        writer.published("flood/end")


def test_all_get_the_same_and_less_of_it(
    house: BrokerProcess, web: Web, certificates: Path, name: str
) -> None:
    """And who did not ask for compression gets it in clear, by the same listener."""
    clear = WebRaw(house.ports["secure"], f"{name}-clear", tls=trusting(certificates / "ca.pem"))
    clients: list[WebRaw] = [clear, *(web(f"{name}-{number}") for number in range(3))]
    for client in clients:
        client.subscribed(f"{name}/#")
    flood(house.port, f"{name}/x", 500)
    for client in clients:
        assert client.payloads(500) == [text(number) for number in range(500)]
        size = sum(client.frames.sizes)
        assert (client.frames.compressed > 0) is (size < 250_000) is (client is not clear), size
        client.close()


def test_what_is_sent_to_the_broker_may_be_short(web: Web, name: str) -> None:
    with web(name) as client:
        client.subscribed(f"{name}/#")
        for size in (0, 1, 127, 128, 200_000):
            client.publish(f"{name}/x", bytes(size))
            assert len(client.message().payload) == size


@pytest.mark.parametrize("version", [4, 5])
def test_a_slow_consumer_is_told_why_it_is_cut(house: BrokerProcess, web: Web, name: str, version: int) -> None:
    """What comes before that are whole records."""
    with web(name, version, receive_buffer=4096) as slow:
        slow.subscribed(f"cut/{name}")
        flood(house.port, f"cut/{name}", 20_000)
        until(lambda: house.verdicts(name), what="a verdict")
        slow.wait_end()
        assert slow.decoder.buffered_bytes == 0, "the stream ends within a packet"
        assert slow.closed is not None
        assert slow.closed[0] == 1013


def test_a_stream_is_whole_when_its_records_are_dropped(house: BrokerProcess, web: Web, name: str) -> None:
    with web(name, receive_buffer=4096) as slow:
        slow.subscribed(f"oldest/{name}")
        flood(house.port, f"oldest/{name}", 20_000)
        until(lambda: any(row["action"]["kind"] == "discard" for row in house.verdicts(name)), what="a verdict")
        until(lambda: slow.read(1.0) and any(b"019999" in m.payload for m in slow.inbox if hasattr(m, "payload")))
        slow.so_far()
        assert not slow.ended


def test_a_consumer_that_reads_late_gets_everything(house: BrokerProcess, web: Web, name: str) -> None:
    with web(name, receive_buffer=4096) as late:
        late.subscribed(f"late/{name}")
        flood(house.port, f"late/{name}", 20_000)
        assert late.payloads(20_000) == [text(number) for number in range(20_000)]
