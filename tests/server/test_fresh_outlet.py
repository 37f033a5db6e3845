"""What two kernels hold of a slow client's records, over a real socket: plain, in TLS, in a WebSocket. The clock is the
test's."""

from __future__ import annotations

import array
import asyncio
import fcntl
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bench.wires.websocket import request
from tests.interop.waiting import PATIENCE_S, holds, until
from tests.server.test_tls_stream import Client, Told, context_of

from headway.core.base import Reason
from headway.server.connections.socket_outlet import SocketOutlet
from headway.server.connections.turn_budget import ConnectionState
from headway.server.progress import Glances, PeerSockets, PieceBudget, RoomLooks
from headway.server.progress.peer_progress import UNWANTED_S
from headway.server.protocols import PROTOCOLS
from headway.server.transport import ByteStream, Handshakes, PlainStream, TlsHandshake, TlsStream
from headway.server.websocket import Rules, WebSocketStream

LOOK_S = 0.2
HELD_LOOKS = 100
TIMER_S = 0.5
TLS_RECORD_BYTES = 16 * 1024
SIOCOUTQNSD = 0x894B
SEND_BUFFER_BYTES = 128 * 1024
"""The kernel doubles it, as it does for the server's sockets."""
RECEIVE_BUFFER_BYTES = 64 * 1024
"""The far kernel would make it larger, for it knows that the clock is not its own."""
SEGMENT_BYTES = 1400
"""Segments of 64 KiB, as on loopback, would wait for a window that is as wide, until a real timer runs out."""
MUCH_BYTES, LITTLE_BYTES = 120_000, 72 * 1024
"""What waits in a kernel is counted in its segments, so a full buffer may have a little less than its size."""


class Outlet(SocketOutlet):
    """An outlet whose owner has endless records to send."""

    def close(self, reason: Reason, text: str = "") -> None:
        raise AssertionError(text)

    def _on_writable(self) -> None:
        self._may_write()

    held_back = 0
    """Bytes that the stream has, and no kernel."""

    def _count_unsent(self, size: int) -> None:
        self.held_back = size

    def fill(self, now: float) -> None:
        data = bytes(32 * 1024)
        if not self._may_write():
            return
        while self.took(self.send([data], len(data)), len(data), now):
            pass
        self.blocked = False

    @property
    def unsent_bytes(self) -> int:
        """Bytes that have not left our side."""
        answer = array.array("i", [0])
        fcntl.ioctl(self.sock, SIOCOUTQNSD, answer)
        return answer[0] + self.held_back


class Story:
    def __init__(self, stream: ByteStream, far: socket.socket, *, remote: bool = True) -> None:
        loop: Any = SimpleNamespace(add_writer=lambda *_: None, remove_writer=lambda *_: None,
                                    call_later=lambda *_: None)
        host: Any = SimpleNamespace(loop=loop, pieces=PieceBudget(), glances=Glances(), now=lambda: self.now,
                                    peer_sockets=PeerSockets(not remote), room_looks=RoomLooks())
        self.now, self.read, self.far = 1000.0, 0, far
        self.outlet = Outlet(host, stream, self.now)
        self.outlet._small.left_bytes = 0  # it is not new
        far.setblocking(False)

    def reads(self, rate: float, seconds: float, *, every_s: float = LOOK_S) -> int:
        """Reads at a rate, in gulps every so often. Returns how much it has read in this time."""
        before, allowance = self.read, 0.0
        for number in range(1, round(seconds / LOOK_S) + 1):
            self.now += LOOK_S
            if number % round(every_s / LOOK_S) == 0:
                allowance = rate * every_s
            with suppress(BlockingIOError):
                while allowance >= 1:
                    if self.outlet.unsent_bytes:  # a kernel may let a timer run out first, in real time
                        select.select([self.far], [], [], TIMER_S)
                    size = len(self.far.recv(min(int(allowance), 16 * 1024)))
                    self.read, allowance = self.read + size, allowance - size
                    self.outlet.fill(self.now)
            allowance = 0.0
            self.outlet.fill(self.now)
            self.outlet.blocked = True  # more waits
            self.outlet.pace(self.now)
            self.outlet.blocked = False
        return self.read - before

    def keeps_much(self) -> bool:
        """A busy kernel is late with what it has sent, and takes no more meanwhile; so it is asked until it has."""
        self.outlet.fill(self.now)
        return self.outlet.unsent_bytes > MUCH_BYTES

    def held(self, rate: float) -> float:
        """Returns how much both kernels hold of a steady reader's records, on average."""
        held = 0
        for _ in range(HELD_LOOKS):
            self.reads(rate, LOOK_S)
            held += self.outlet.taken_bytes - self.read
        return held / HELD_LOOKS

    def looks(self, rate: float, count: int = HELD_LOOKS) -> list[int]:
        """Returns how much has not left our side at each look of a steady reader's."""
        found = []
        for _ in range(count):
            self.reads(rate, LOOK_S)
            found.append(self.outlet.unsent_bytes)
        return found


@contextmanager
def pair(receive_buffer: int = 0) -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as far:
        if receive_buffer:
            far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            far.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
        far.connect(server.getsockname())
        near, _ = server.accept()
        with near:
            near.setblocking(False)
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
            yield near, far


@pytest.fixture
def story() -> Iterator[Story]:
    with pair() as (near, far):
        yield Story(PlainStream(near), far)


def in_tls(near: socket.socket, far: socket.socket, certificates: Path) -> ByteStream:
    async def shake_hands() -> TlsStream:
        handshakes = Handshakes(asyncio.get_running_loop())
        handshake = TlsHandshake(near, context_of(certificates), handshakes, "x", 10, "mqtts://x")
        stream, opening = TlsStream(handshake), Told()
        stream.open(opening)
        await Client(certificates, far).shake_hands()
        await holds(lambda: opening.ready)
        handshakes.close()
        return stream

    far.setblocking(False)
    return asyncio.run(asyncio.wait_for(shake_hands(), PATIENCE_S))


def in_websocket(near: socket.socket, far: socket.socket, _folder: Path) -> ByteStream:
    far.sendall(request("/mqtt", "localhost", "mqtt")[0])
    loop: Any = SimpleNamespace(add_reader=lambda _, call: call(), remove_reader=lambda *_: None)
    near.setblocking(True)  # for the request
    stream = WebSocketStream(PlainStream(near), Rules(("/mqtt",), None, {"mqtt": "mqtt"}), PROTOCOLS, loop)
    stream.open(Told())
    near.setblocking(False)
    assert stream.ready
    return stream


def as_it_is(near: socket.socket, _far: socket.socket, _folder: Path) -> ByteStream:
    return PlainStream(near)


Wrapped = Callable[[socket.socket, socket.socket, Path], ByteStream]


@pytest.mark.parametrize("wrapped", [as_it_is, in_tls, in_websocket])
def test_little_waits_in_our_kernel_for_a_steady_reader_that_wants_what_is_new(
    wrapped: Wrapped, certificates: Path
) -> None:
    with pair(RECEIVE_BUFFER_BYTES) as (near, far):
        story = Story(wrapped(near, far, certificates), far)
        story.reads(50_000, 30)
        held_before = story.held(50_000)
        until(story.keeps_much)
        story.outlet.freshen()
        for _ in range(8):  # kernels have clocks of their own
            story.reads(50_000, 15)
            if story.outlet.unsent_bytes <= LITTLE_BYTES:
                break
        assert max(story.looks(50_000)) <= LITTLE_BYTES
        assert not near.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), "small segments are joined"
        assert story.held(50_000) < 0.7 * held_before
        assert story.reads(50_000, 30) == pytest.approx(50_000 * 30, rel=0.01), "it gets as much as it reads"
        story.reads(1e7, 3)
        found = story.looks(50_000, 25)
        assert near.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert max(found) > LITTLE_BYTES, "it was fast, so nobody knows how it reads now"


@pytest.mark.parametrize("gulp", [100_000, 200_000, 300_000, 400_000])
def test_who_reads_in_gulps_gets_as_much_as_before(story: Story, gulp: int) -> None:
    story.reads(gulp / 8, 40, every_s=8)
    before = story.reads(gulp / 8, 240, every_s=8)
    story.outlet.freshen()
    assert story.reads(gulp / 8, 240, every_s=8) >= 0.95 * before


def test_who_reads_more_at_once_than_its_own_buffer_holds_keeps_both(story: Story) -> None:
    story.outlet.freshen()
    story.reads(50_000, 120, every_s=8)
    until(story.keeps_much)


def test_who_does_not_read_keeps_both_buffers(story: Story) -> None:
    story.outlet.freshen()
    story.reads(0, 60)
    until(story.keeps_much)


def test_what_is_unread_in_the_peers_kernel_shows_in_its_window(story: Story) -> None:
    story.reads(50_000, 30)
    held = story.outlet.taken_bytes - story.read
    said = story.outlet.taken_bytes - story.outlet.seen_bytes()
    assert 0.6 * held <= said <= 1.4 * held


@pytest.mark.parametrize("wrapped", [as_it_is, in_tls, in_websocket])
def test_a_slow_reader_on_this_host_is_sent_what_it_is_about_to_read(wrapped: Wrapped, certificates: Path) -> None:
    with pair() as (near, far):
        story = Story(wrapped(near, far, certificates), far, remote=False)
        story.outlet.freshen()
        story.reads(50_000, 15)
        story.outlet.freshen()
        assert story.reads(50_000, 20) == pytest.approx(50_000 * 20, rel=0.01), "it gets as much as it reads"
        story.outlet.freshen()
        assert story.held(50_000) <= 2 * 50_000 * LOOK_S + TLS_RECORD_BYTES
        assert not story.outlet._frugal
        story.outlet._become(ConnectionState.CLOSED)
        assert story.outlet.host.room_looks.peers == 0


@pytest.mark.parametrize("gulp", [100_000, 400_000])
def test_who_reads_in_gulps_on_this_host_gets_as_much_as_before(gulp: int) -> None:
    with pair() as (near, far):
        story = Story(PlainStream(near), far, remote=False)
        story.reads(gulp / 8, 40, every_s=8)
        before, got = story.reads(gulp / 8, 240, every_s=8), 0
        for _ in range(30):
            story.outlet.freshen()
            got += story.reads(gulp / 8, 8, every_s=8)
        assert got >= 0.95 * before


def test_a_slow_reader_whose_records_nobody_conflates_any_more_has_no_limit() -> None:
    with pair() as (near, far):
        story = Story(PlainStream(near), far, remote=False)
        story.outlet.freshen()
        story.reads(50_000, 15)
        assert story.outlet.room_bytes < inf
        story.reads(50_000, UNWANTED_S)
        assert story.outlet.room_bytes == inf
