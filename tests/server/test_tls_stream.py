"""A TLS stream over real sockets: what it holds back is bounded, and what the kernel counts is counted right."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from tests.certificates import trusting
from tests.interop.waiting import PATIENCE_S, holds

from headway.core.base import Reason
from headway.server.config.tls.certificates import TlsContext
from headway.server.http.http_listener import LIMIT
from headway.server.progress.tcp_info import TcpInfo
from headway.server.transport import Handshakes, StreamError, TlsHandshake, TlsStream
from headway.server.transport.tls_stream import (
    BATCH_BYTES,
    MAKES_UP,
    MARK_BYTES,
    RECORD_BYTES,
    SILENT_RECORDS_MAX,
    WireMarks,
    contents,
)

SEND_BUFFER_BYTES = 128 * 1024


def context_of(certificates: Path) -> TlsContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server-key.pem")
    return TlsContext(context, "common_name")


class Told:
    """Waits for a stream, as a connection does."""

    address = "127.0.0.1"

    def __init__(self) -> None:
        self.ready = False
        self.ended: tuple[Reason, str] | None = None

    def holds(self, size: int) -> None: ...

    def opened(self) -> None:
        self.ready = True

    def close(self, reason: Reason, text: str = "") -> None:
        self.ended = reason, text


class Client:
    """The far side: a socket, and TLS in memory, so that it says exactly what it is told to."""

    def __init__(self, certificates: Path, sock: socket.socket) -> None:
        self.sock = sock
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = trusting(certificates / "ca.pem").wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.found = bytearray()
        self.over = False

    async def shake_hands(self, behind: bytes = b"") -> None:
        """``behind``: said in one breath with the last word of the handshake."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await loop.sock_sendall(self.sock, self.outgoing.read())
                self.incoming.write(await loop.sock_recv(self.sock, 65536))
        if behind:
            self.tls.write(behind)
        await loop.sock_sendall(self.sock, self.outgoing.read())

    def read(self) -> bytes:
        """What has come so far."""
        with suppress(BlockingIOError):
            while not self.over:
                data = self.sock.recv(1 << 20)
                self.over = not data
                for at in range(0, len(data), 65536):
                    self.incoming.write(data[at : at + 65536])
                    with suppress(ssl.SSLWantReadError):
                        while piece := self.tls.read(65536):
                            self.found += piece
        return bytes(self.found)


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        client.connect(server.getsockname())
        ours, _ = server.accept()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES // 2)
    ours.setblocking(False)
    client.setblocking(False)
    with ours, client:
        yield ours, client


def told(
    story: Callable[[TlsStream, Client], Coroutine[Any, Any, None]], certificates: Path, behind: bytes = b""
) -> None:
    async def whole() -> None:
        handshakes = Handshakes(asyncio.get_running_loop())
        with pair() as (ours, theirs):
            handshake = TlsHandshake(ours, context_of(certificates), handshakes, "x", 10, "mqtts://x")
            stream, opening = TlsStream(handshake), Told()
            stream.open(opening)
            assert stream.stage
            client = Client(certificates, theirs)
            await client.shake_hands(behind)
            await holds(lambda: opening.ready)
            assert (len(handshakes), handshakes.done, stream.stage) == (0, 1, "")
            await story(stream, client)
        handshakes.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(whole(), PATIENCE_S))


def fill(stream: TlsStream, data: bytes) -> int:
    """Offers the rest again and again, until the kernel is full."""
    taken = 0
    while taken < len(data) and not stream.unsent:
        taken += stream.send([memoryview(data)[taken:]])
    return taken


def test_at_most_one_batch_waits_and_nothing_is_lost(certificates: Path) -> None:
    data = os.urandom(4_000_000)

    async def story(stream: TlsStream, client: Client) -> None:
        taken = fill(stream, data)
        assert 0 < stream.unsent <= BATCH_BYTES + 1_000
        assert taken < 1_000_000, "no more than kernels have room for"
        before = stream.unsent
        for _ in range(100):
            assert stream.send([b"more"]) == 0, "nothing is enciphered before the last has gone"
        assert stream.unsent == before
        while len(client.found) < len(data):
            client.read()
            stream.flush()
            if not stream.unsent:
                taken += stream.send([memoryview(data)[taken : taken + 300_000]])
            await asyncio.sleep(0)
        assert client.read() == data

    told(story, certificates)


def test_a_record_at_most_is_too_much_where_the_kernel_is_nearly_full(certificates: Path) -> None:
    """What the kernel has room for is asked, so that batches do not end up waiting."""

    async def story(stream: TlsStream, client: Client) -> None:
        fill(stream, bytes(4_000_000))
        assert stream.unsent <= RECORD_BYTES + 100

    told(story, certificates)


@pytest.mark.parametrize("size", [40, 1_000, 100_000])
def test_what_is_acknowledged_is_what_was_given(certificates: Path, size: int) -> None:
    """40 bytes become 62 on the wire: a reader of small records must not look faster than it is."""

    async def story(stream: TlsStream, client: Client) -> None:
        given = sum(stream.send([bytes(size)]) for _ in range(400_000 // size) if not stream.unsent)
        info = TcpInfo(stream.sock)
        assert 0 <= given - stream.acknowledged(info.acked_bytes) <= given

        def is_read() -> bool:
            client.read()
            stream.flush()
            return len(client.found) == given

        await holds(is_read)
        await holds(lambda: stream.acknowledged(TcpInfo(stream.sock).acked_bytes) == given)

    told(story, certificates)


def test_a_stuck_reader_has_not_acknowledged_what_it_was_sent(certificates: Path) -> None:
    async def story(stream: TlsStream, client: Client) -> None:
        given = fill(stream, bytes(4_000_000))
        before = -1

        def stands() -> bool:
            nonlocal before
            last, before = before, stream.acknowledged(TcpInfo(stream.sock).acked_bytes)
            return last == before and given - before >= SEND_BUFFER_BYTES // 4

        await holds(stands)

    told(story, certificates)


@given(st.lists(st.binary(max_size=20) | st.integers(0, 3 * RECORD_BYTES).map(bytes), max_size=12))
def test_records_are_full_up_to_the_last(views: list[bytes]) -> None:
    """So the header of a frame is in no record of its own."""
    found = [bytes(content) for content in contents(views)]
    assert b"".join(found) == b"".join(views)
    assert all(len(content) == RECORD_BYTES for content in found[:-1])
    assert all(0 < len(content) <= RECORD_BYTES for content in found)


def test_small_pieces_are_the_same_bytes(certificates: Path) -> None:
    data = os.urandom(30_000)

    async def story(stream: TlsStream, client: Client) -> None:
        taken = 0
        while len(client.found) < len(data):
            stream.flush()
            if not stream.unsent:
                taken += stream.send_pieces(data[taken:], 1024)
            client.read()
            await asyncio.sleep(0)
        assert client.read() == data

    told(story, certificates)


def test_bytes_behind_the_handshake_are_pending(certificates: Path) -> None:
    """The kernel shows nothing any more."""

    async def story(stream: TlsStream, client: Client) -> None:
        assert stream.pending
        assert stream.receive(65536) == b"hello"
        assert not stream.pending
        with pytest.raises(BlockingIOError):
            stream.receive(65536)

    told(story, certificates, b"hello")


def test_the_end_is_pending_behind_the_last_bytes(certificates: Path) -> None:
    async def story(stream: TlsStream, client: Client) -> None:
        client.tls.write(b"last")
        with suppress(ssl.SSLWantReadError):
            client.tls.unwrap()
        client.sock.sendall(client.outgoing.read())
        found = b""

        def heard() -> bytes:
            nonlocal found
            with suppress(BlockingIOError):
                found += stream.receive(65536)
            return found

        await holds(heard)
        assert found == b"last"
        assert stream.pending
        assert stream.receive(65536) == b""

    told(story, certificates)


def test_garbage_is_an_end_with_words(certificates: Path) -> None:
    async def story(stream: TlsStream, client: Client) -> None:
        client.sock.sendall(b"\x17\x03\x03\x00\x10" + bytes(16))
        ended: list[StreamError] = []

        def heard() -> bool:
            try:
                stream.receive(65536)
            except BlockingIOError:
                pass
            except StreamError as error:
                ended.append(error)
            return bool(ended)

        await holds(heard)
        assert ended[0].reason is Reason.PROTOCOL_ERROR
        assert "TLS" in str(ended[0])
        assert stream.last_words([b"x"]) == [], "nothing can be said any more"

    told(story, certificates)


def test_last_words_are_enciphered_behind_what_waits(certificates: Path) -> None:
    async def story(stream: TlsStream, client: Client) -> None:
        data = os.urandom(2_000_000)
        taken = fill(stream, data)
        waiting = bytearray().join(stream.last_words([b"", b"half a record", bytearray(b"goodbye")]))
        while waiting or len(client.found) < taken + 20:
            with suppress(BlockingIOError):
                del waiting[: stream.sock.send(waiting)]
            client.read()
            await asyncio.sleep(0)
        assert client.read() == data[:taken] + b"half a recordgoodbye"
        assert client.tls.read(1) == b"", "the end was said"

    told(story, certificates)


class File:
    """A chunk's bytes on disk, of which the last cannot be read."""

    fd, offset, disk_bytes = 0, 0, 0

    def __init__(self, data: bytes, bad_from: int) -> None:
        self.data, self.bad_from = data, bad_from

    def read(self, start: int, stop: int) -> bytes:
        if stop > self.bad_from:
            raise OSError(errno.EIO, "bad disk")
        return self.data[start:stop]

    def release(self) -> None: ...


def test_a_file_whose_disk_fails_tells_what_was_sent_first(certificates: Path) -> None:
    data = os.urandom(100_000)

    async def story(stream: TlsStream, client: Client) -> None:
        taken = stream.send_file(File(data, 70_000), 0, 100_000)
        assert taken == BATCH_BYTES
        await holds(lambda: client.read() == data[:taken])
        with pytest.raises(OSError, match="bad disk") as raised:
            stream.send_file(File(data, 70_000), taken, 100_000 - taken)
        assert not isinstance(raised.value, ConnectionError), "it is the disk"

    told(story, certificates)


@given(st.lists(st.tuples(st.integers(1, 60_000), st.integers(0, 2_000)), min_size=1, max_size=100), st.data())
def test_marks_translate_in_order_and_exactly_at_the_end(sends: list[tuple[int, int]], data: st.DataObject) -> None:
    marks, wire, plain = WireMarks(500), 500, 0
    for given_bytes, more in sends:
        wire, plain = wire + given_bytes + more, plain + given_bytes
        marks.note(wire, given_bytes)
    at = sorted(data.draw(st.lists(st.integers(0, wire), max_size=10)))
    found = [marks.plain_of(one, wire) for one in at]
    assert found == sorted(found)
    assert all(0 <= one <= plain for one in found)
    assert all(one >= plain - (wire - there) for one, there in zip(found, at, strict=True)), "overhead is only left out"
    assert marks.plain_of(wire, wire) == marks.plain_of(wire + MARK_BYTES, wire) == plain


def test_the_handshakes_of_the_admin_api_are_not_those_of_a_listener_called_admin() -> None:
    class Waiting:
        said = ""

        def give_up(self, reason: Reason, text: str) -> None:
            self.said = text

    async def play() -> None:
        ours, theirs = Waiting(), Waiting()
        handshakes = Handshakes(asyncio.get_running_loop())
        handshakes.wait(theirs, "listeners.admin.handshakes_max", 1)
        handshakes.wait(ours, LIMIT, 1)
        assert not theirs.said
        handshakes.wait(Waiting(), LIMIT, 1)
        assert ours.said.endswith("(the limit of the admin API)")

    asyncio.run(play())


class Empty:
    """A handshake that is done, of a client whose records have no content, but for ``content`` in each read."""

    unsent, wire_bytes, user = b"", 0, ""

    def __init__(self, content: list[bytes]) -> None:
        self.sock, self._theirs = socket.socketpair()
        self.sock.setblocking(False)
        self.content, self.tls = content, self
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.deciphered = 0

    def begin(self, stream: TlsStream) -> None:
        stream.secured(self)  # type: ignore[arg-type]

    def read(self, size: int) -> bytes:
        self.deciphered += len(self.incoming.read())
        if self.content:
            return self.content.pop()
        raise ssl.SSLWantReadError

    def say(self, data: bytes) -> None:
        self._theirs.sendall(data)

    def close(self) -> None:
        self.sock.close()
        self._theirs.close()


WISH = b"\x17\x03\x03\x00\x16" + bytes(22)


@pytest.mark.parametrize("size", [1, 27 * 100, 27 * 300, 31])
def test_who_sends_records_without_content_again_and_again_is_disconnected(size: int) -> None:
    content: list[bytes] = []
    with closing(Empty(content)) as client:
        stream = TlsStream(client)  # type: ignore[arg-type]
        stream.open(Told())
        for _ in range(SILENT_RECORDS_MAX * 4):  # who sends content has all the keys it wants
            client.say(WISH)
            content += [b"x"] * MAKES_UP
            client.say((b"\x17\x03\x03\x00\x17" + bytes(23)) * MAKES_UP)
            assert stream.receive(65536) == b"x" * MAKES_UP
        said, client.deciphered = WISH * 5000, 0
        ended: list[StreamError] = []
        for at in range(0, len(said), size):
            client.say(said[at : at + size])
            try:
                stream.receive(65536)
            except BlockingIOError:
                pass
            except StreamError as error:
                ended.append(error)
                break
        assert "records without content again and again" in str(ended[0])
        assert client.deciphered <= max(size, 1) + len(WISH) * (SILENT_RECORDS_MAX + 1)
        client.say(WISH)
        with pytest.raises(StreamError):
            stream.receive(65536)
