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
from headway.server.connections.socket_outlet import FRUGAL_BYTES, SocketOutlet
from headway.server.transport import PlainStream

LOOK_S = 0.2
SIOCOUTQNSD = 0x894B
SEND_BUFFER_BYTES = 128 * 1024
"""The kernel doubles it, as it does for the server's sockets."""
SEGMENT_BYTES = 64 * 1024
"""The kernel takes one of these although it has too much already."""


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

    def reads(self, rate: float, seconds: float, *, every_s: float = 0.0) -> int:
        """Reads at a rate, or all that is there once in a while. Returns how much it has read in this time."""
        before, allowance = self.read, 0.0
        for number in range(round(seconds / LOOK_S)):
            self.now += LOOK_S
            gulps = bool(every_s) and number % round(every_s / LOOK_S) == 0
            allowance = 1e9 if gulps else allowance + rate * LOOK_S
            with suppress(BlockingIOError):
                while allowance >= 1:
                    size = len(self.far.recv(min(int(allowance), 16 * 1024)))
                    self.read, allowance = self.read + size, allowance - size
                    self.outlet.fill(self.now)
            allowance = min(allowance, rate * LOOK_S)
            self.outlet.fill(self.now)
            self.outlet.blocked = True  # more waits
            self.outlet.pace(self.now)
            self.outlet.blocked = False
        return self.read - before


@pytest.fixture
def story() -> Iterator[Story]:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as far:
        near, _ = server.accept()
        with near:
            near.setblocking(False)
            near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
            yield Story(near, far)


def test_little_waits_in_our_kernel_for_a_steady_reader_that_wants_what_is_new(story: Story) -> None:
    story.reads(50_000, 30)
    held_before = story.outlet.taken_bytes - story.read
    assert story.outlet.unsent_bytes > 2 * SEGMENT_BYTES
    story.outlet.freshen()
    story.reads(50_000, 30)
    assert story.outlet.unsent_bytes <= SEGMENT_BYTES + FRUGAL_BYTES
    assert story.outlet.taken_bytes - story.read < 0.7 * held_before
    assert story.reads(50_000, 30) == pytest.approx(50_000 * 30, rel=0.01), "it gets as much as it reads"
    story.reads(1e7, 3)
    story.reads(50_000, 5)
    assert story.outlet.unsent_bytes > 2 * SEGMENT_BYTES, "it was fast, so nobody knows how it reads now"


def test_who_reads_all_at_once_keeps_both_buffers(story: Story) -> None:
    story.outlet.freshen()
    story.reads(0, 60, every_s=8)
    story.reads(0, 4)
    assert story.outlet.unsent_bytes > 2 * SEGMENT_BYTES


def test_who_does_not_read_keeps_both_buffers(story: Story) -> None:
    story.outlet.freshen()
    story.reads(0, 60)
    assert story.outlet.unsent_bytes > 2 * SEGMENT_BYTES


def test_what_is_unread_in_the_peers_kernel_shows_in_its_window(story: Story) -> None:
    story.reads(50_000, 30)
    held = story.outlet.taken_bytes - story.read
    said = story.outlet.taken_bytes - story.outlet.seen_bytes()
    assert 0.6 * held <= said <= 1.4 * held
    story.reads(1e6, 1)
