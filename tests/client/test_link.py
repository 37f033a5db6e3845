"""A link over real sockets, to a listener that does what a broker does seldom."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from bench.wires.packets import encode_publish
from tests.interop.waiting import holds

from headway.client.broker_address import read_broker_address
from headway.client.link import Link, LinkError, Pairs
from headway.core.message import Properties, Run
from headway.wire.mqtt.decoder import MqttDecoder
from headway.wire.mqtt.packets import Connect, DisconnectPacket, PingReq
from headway.wire.mqtt.properties import Fields
from headway.wire.mqtt.replies import Replies

PATIENCE_S = 20.0
BROKER = Replies(5)


class Broker:
    """A listener with what its clients have sent, and a way to send to the last of them."""

    def __init__(self, greeting: bytes | None) -> None:
        self.greeting = greeting
        """Bytes that answer CONNECT; None: the connection is closed at once."""
        self.heard: list[object] = []
        self.port = 0
        self.writer: asyncio.StreamWriter | None = None
        self.left = asyncio.Event()
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Broker:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer, decoder = writer, MqttDecoder()
        self._writers.append(writer)
        while data := await reader.read(4096):
            for packet in decoder.feed(data):
                self.heard.append(packet)
                if isinstance(packet, Connect) and self.greeting is not None:
                    writer.write(self.greeting)
            if self.greeting is None:
                writer.close()
                break
        self.left.set()

    def send(self, data: bytes) -> None:
        assert self.writer is not None
        self.writer.write(data)

    @property
    def unread_bytes(self) -> int:
        assert self.writer is not None
        return self.writer.transport.get_write_buffer_size()


class User:
    """A receiver with so much room."""

    def __init__(self) -> None:
        self.left = 1 << 30
        self.got: list[int] = []
        self.why: list[str] = []

    def room(self) -> int:
        return self.left

    def received(self, runs: Sequence[Run]) -> None:
        self.got += [int(run.payload(0)[:8]) for run in runs]
        self.left -= len(runs)

    def granted(self, number: int, refusal: str, user: Pairs) -> None: ...

    def ended(self, number: int) -> None: ...

    def lost(self, why: str) -> None:
        self.why.append(why)


def record(number: int, fill: bytes = b"") -> bytes:
    said = Properties(user=(("offset", str(number)),))
    return encode_publish("t", b"%08d" % number + fill, properties=said)


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(2 * PATIENCE_S):
            await story()

    asyncio.run(within())


def link_to(broker: Broker, user: User) -> Link:
    return Link(read_broker_address(f"mqtt://127.0.0.1:{broker.port}"), "me", 65_535, user)


def test_it_reads_only_what_there_is_room_for() -> None:
    """What there is no room for stays with the broker, whose buffers fill."""
    count, fill = 8_000, b"." * 2_000

    async def story() -> None:
        async with Broker(BROKER.connack()) as broker:
            user = User()
            link = link_to(broker, user)
            await link.connect(PATIENCE_S)
            user.left = 10
            for number in range(count):
                broker.send(record(number, fill))
            await holds(lambda: len(user.got) >= 10)
            assert user.got == list(range(10))
            assert broker.unread_bytes
            user.left = 1_000
            link.go_on()
            await holds(lambda: len(user.got) == 1_010)
            assert broker.unread_bytes
            user.left = 1 << 30
            link.go_on()
            await holds(lambda: len(user.got) == count)
            assert user.got == list(range(count))
            await link.end()
            await broker.left.wait()
            assert broker.heard[1:] == [DisconnectPacket()]
            assert user.why == []

    run(story)


def test_a_link_that_has_nothing_to_say_shows_that_it_is_there() -> None:
    async def story() -> None:
        async with Broker(BROKER.connack(fields=Fields(server_keep_alive=1))) as broker:
            link = link_to(broker, User())
            await link.connect(PATIENCE_S)
            await holds(lambda: broker.heard.count(PingReq()) >= 2)
            await link.end()

    run(story)


@pytest.mark.parametrize(
    ("greeting", "text"),
    [
        (None, "the connection was lost"),
        (BROKER.connack(0x97, fields=Fields(reason_string="full")), "refused: full"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "PUBREL|PUBACK|cannot come"),
        (b"", "no answer within 0.2 s"),
    ],
)
def test_who_is_not_let_in_is_told_why(greeting: bytes | None, text: str) -> None:
    async def story() -> None:
        async with Broker(greeting) as broker:
            user = User()
            link = link_to(broker, user)
            with pytest.raises(LinkError, match=text) as found:
                await link.connect(0.2 if greeting == b"" else PATIENCE_S)
            assert f"127.0.0.1:{broker.port}" in str(found.value)
            assert link.subscribe("a", 0, ()) is None
            assert user.why == []
            await broker.left.wait()

    run(story)


def test_where_nobody_listens() -> None:
    async def story() -> None:
        async with Broker(None) as broker:
            port = broker.port
        link = Link(read_broker_address(f"mqtt://127.0.0.1:{port}"), "me", 65_535, User())
        with pytest.raises(LinkError, match=r"Errno \d+"):
            await link.connect(PATIENCE_S)

    run(story)


def test_the_end_is_told_once_with_the_reason() -> None:
    async def story() -> None:
        async with Broker(BROKER.connack()) as broker:
            user = User()
            link = link_to(broker, user)
            await link.connect(PATIENCE_S)
            broker.send(record(1) + (BROKER.disconnect(0x97, "too slow") or b""))
            await holds(lambda: user.why)
            assert (user.got, user.why) == ([1], ["too slow"])
            assert link.subscribe("a", 0, ()) is None
            await link.connect(PATIENCE_S)
            broker.send(b"")
            assert broker.writer is not None
            broker.writer.close()
            await holds(lambda: len(user.why) == 2)
            assert user.why[1] == "the connection was lost"

    run(story)
