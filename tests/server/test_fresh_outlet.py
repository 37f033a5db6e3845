"""What two kernels hold of a slow client's records, over a real socket; the clock is the test's."""

from __future__ import annotations

import array
import fcntl
import socket
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from headway.core.base import Reason
from headway.server.connections.peer_progress import PieceBudget
from headway.server.connections.socket_outlet import SocketOutlet
from headway.server.transport import PlainStream

LOOK_S = 0.2
HELD_LOOKS = 100
SIOCOUTQNSD = 0x894B
SEND_BUFFER_BYTES = 128 * 1024
"""The kernel doubles it, as it does for the server's sockets."""
MUCH_BYTES, LITTLE_BYTES = 128 * 1024, 72 * 1024


class Outlet(SocketOutlet):
    """An outlet whose owner has endless records to send."""

    def close(self, reason: Reason, text: str = "") -> None:
        raise AssertionError(text)

    def _on_writable(self) -> None:
        self._may_write()

    def _count_unsent(self, size: int) -> None:
        assert not size, "a plain stream holds nothing back"

    def fill(self, now: float) -> None:
        data = bytes(32 * 1024)
        while self.took(self.send([data], len(data)), len(data), now):
            pass
        self.blocked = False

    @property
    def unsent_bytes(self) -> int:
        answer = array.array("i", [0])
        fcntl.ioctl(self.sock, SIOCOUTQNSD, answer)
        return answer[0]


class Story:
    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        loop: Any = SimpleNamespace(add_writer=lambda *_: None, remove_writer=lambda *_: None)
        host: Any = SimpleNamespace(loop=loop, pieces=PieceBudget(), now=lambda: self.now)
        self.now, self.read, self.far = 1000.0, 0, far
        self.outlet = Outlet(host, PlainStream(near), self.now)
        self.outlet._fine_bytes = 0  # it is not new
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
                    size = len(self.far.recv(min(int(allowance), 16 * 1024)))
                    self.read, allowance = self.read + size, allowance - size
                    self.outlet.fill(self.now)
            allowance = 0.0
            self.outlet.fill(self.now)
            self.outlet.blocked = True  # more waits
            self.outlet.pace(self.now)
            self.outlet.blocked = False
        return self.read - before

    def held(self, rate: float) -> float:
        """Returns how much both kernels hold of a steady reader's records, on average."""
        held = 0
        for _ in range(HELD_LOOKS):
            self.reads(rate, LOOK_S)
            held += self.outlet.taken_bytes - self.read
        return held / HELD_LOOKS


@pytest.fixture
def story() -> Iterator[Story]:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as far:
        near, _ = server.accept()
        with near:
            near.setblocking(False)
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
            yield Story(near, far)


def test_little_waits_in_our_kernel_for_a_steady_reader_that_wants_what_is_new(story: Story) -> None:
    story.reads(50_000, 30)
    held_before = story.held(50_000)
    assert story.outlet.unsent_bytes > MUCH_BYTES
    story.outlet.freshen()
    story.reads(50_000, 30)
    assert story.outlet.unsent_bytes <= LITTLE_BYTES
    assert not story.outlet.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), "small segments are joined"
    assert story.held(50_000) < 0.7 * held_before
    assert story.reads(50_000, 30) == pytest.approx(50_000 * 30, rel=0.01), "it gets as much as it reads"
    story.reads(1e7, 3)
    story.reads(50_000, 5)
    assert story.outlet.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert story.outlet.unsent_bytes > MUCH_BYTES, "it was fast, so nobody knows how it reads now"


@pytest.mark.parametrize("gulp", [100_000, 200_000, 300_000, 400_000])
def test_who_reads_in_gulps_gets_as_much_as_before(story: Story, gulp: int) -> None:
    story.reads(gulp / 8, 40, every_s=8)
    before = story.reads(gulp / 8, 240, every_s=8)
    story.outlet.freshen()
    assert story.reads(gulp / 8, 240, every_s=8) >= 0.95 * before


def test_who_reads_more_at_once_than_its_own_buffer_holds_keeps_both(story: Story) -> None:
    story.outlet.freshen()
    story.reads(50_000, 120, every_s=8)
    assert story.outlet.unsent_bytes > MUCH_BYTES


def test_who_does_not_read_keeps_both_buffers(story: Story) -> None:
    story.outlet.freshen()
    story.reads(0, 60)
    assert story.outlet.unsent_bytes > MUCH_BYTES


def test_what_is_unread_in_the_peers_kernel_shows_in_its_window(story: Story) -> None:
    story.reads(50_000, 30)
    held = story.outlet.taken_bytes - story.read
    said = story.outlet.taken_bytes - story.outlet.seen_bytes()
    assert 0.6 * held <= said <= 1.4 * held
