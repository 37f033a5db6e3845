"""Who reads nothing is sent nothing, if the kernel knows; real sockets, and a clock that the tests turn."""

from __future__ import annotations

import socket
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from tests.interop.waiting import until

from headway.core.base import Reason
from headway.server.connections.socket_outlet import CRAMPED_BYTES, SocketOutlet
from headway.server.connections.turn_budget import ConnectionState
from headway.server.progress import TRIED_BYTES, Glances, PeerSockets, PieceBudget, RoomLooks, TcpInfo
from headway.server.progress.fresh_window import STILL_LOOK_S
from headway.server.progress.peer_progress import STANDS_PAUSES, STANDS_S, UNKNOWN_S
from headway.server.transport import PlainStream

RECORD = bytes(1000)
STEP_S, RECORDS_A_STEP = 0.25, 10


class Outlet(SocketOutlet):
    """An outlet that is sent a feed. ``lag`` is what it did not take."""

    lag = 0

    def close(self, reason: Reason, text: str = "") -> None:
        raise AssertionError(text)

    def _on_writable(self) -> None:
        if self._may_write():
            self.blocked = False
            self.offer(0)

    def _count_unsent(self, size: int) -> None:
        pass

    def offer(self, records: int) -> None:
        self.lag += records
        while self.lag and not self.blocked:
            taken = self.send([RECORD], len(RECORD))
            assert taken in (0, len(RECORD)), "its kernel has room"
            self.lag -= self.took(taken, len(RECORD), self.host.now())


class Stage:
    def __init__(self, near: socket.socket, far: socket.socket, *, asked: bool = True) -> None:
        self.now, self.far, self.timers = 1000.0, far, list[tuple[float, Callable[[], None]]]()
        loop: Any = SimpleNamespace(add_writer=lambda *_: None, remove_writer=lambda *_: None,
                                    call_later=lambda s, call: self.timers.append((self.now + s, call)))
        host: Any = SimpleNamespace(loop=loop, pieces=PieceBudget(), glances=Glances(), now=lambda: self.now,
                                    peer_sockets=PeerSockets(asked), room_looks=RoomLooks())
        self.looks: RoomLooks = host.room_looks
        self.outlet = Outlet(host, PlainStream(near), self.now)

    def goes_on(self, seconds: float, *, reads: bool = False) -> None:
        """The feed goes on, and timers run out."""
        for _ in range(round(seconds / STEP_S)):
            self.now += STEP_S
            self.outlet.offer(RECORDS_A_STEP)
            if reads:
                self.read()
            due = [call for at_s, call in self.timers if at_s <= self.now]
            self.timers = [timer for timer in self.timers if timer[0] > self.now]
            for call in due:
                call()

    def read(self) -> None:
        arrived = self.outlet.taken_bytes
        until(lambda: TcpInfo(self.outlet.sock).acked_bytes == arrived, 10, "the bytes do not arrive")
        with suppress(BlockingIOError):
            self.far.recv(10_000_000)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a connection, the far one with room for all that is sent here."""
    with connected(4_000_000) as ends:
        yield ends


@contextmanager
def connected(buffer_bytes: int) -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as far:
        far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        far.connect(server.getsockname())
        near, _ = server.accept()
        with near:
            near.setblocking(False)
            far.setblocking(False)
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield near, far


def test_who_reads_nothing_is_sent_nothing_until_it_reads(pair: tuple[socket.socket, socket.socket]) -> None:
    stage = Stage(*pair)
    stage.goes_on(5, reads=True)
    stage.goes_on(STANDS_S - 1)
    assert stage.outlet.lag == 0, "it may read any moment"
    stage.goes_on(10)
    assert stage.outlet.lag >= 8 / STEP_S * RECORDS_A_STEP, "what comes waits here"
    assert stage.looks.peers == 1
    waits = stage.outlet.taken_bytes
    stage.read()
    stage.goes_on(2 * STILL_LOOK_S + STEP_S)
    assert stage.outlet.taken_bytes > waits
    assert stage.outlet.lag == 0
    assert stage.looks.peers == 0
    assert stage.outlet.room_bytes == inf


def test_it_blocks_from_when_it_is_sent_nothing(pair: tuple[socket.socket, socket.socket]) -> None:
    """So a verdict on it comes no sooner than a few seconds later, whatever its kernel has room for."""
    stage = Stage(*pair)
    stage.goes_on(5, reads=True)
    stopped_s = stage.now
    stage.goes_on(STANDS_S + 4)
    pace = stage.outlet.pace(stage.now)
    assert pace.stands_since_s < inf
    assert pace.unread_since_s < inf
    assert stopped_s + STANDS_S <= pace.stands_since_s <= stopped_s + STANDS_S + 1.5
    assert stopped_s <= pace.unread_since_s <= stopped_s + 1.5


def test_who_usually_pauses_for_so_long_is_sent_all(pair: tuple[socket.socket, socket.socket]) -> None:
    stage = Stage(*pair)
    for _ in range(3):
        stage.goes_on(10)
        stage.read()
        stage.goes_on(1, reads=True)
    stage.goes_on(10)
    assert stage.outlet.lag == 0


def test_who_was_never_seen_to_read_is_given_more_time(pair: tuple[socket.socket, socket.socket]) -> None:
    stage = Stage(*pair)
    assert STANDS_PAUSES * UNKNOWN_S > STANDS_S
    stage.goes_on(STANDS_S - 1)
    assert stage.outlet.lag == 0


def test_a_remote_peer_is_sent_all_that_its_kernel_takes(pair: tuple[socket.socket, socket.socket]) -> None:
    stage = Stage(*pair, asked=False)
    stage.goes_on(STANDS_S + 10)
    assert stage.outlet.lag == 0


@pytest.mark.parametrize(("near", "buffer_bytes"), [(True, 32 * 1024), (True, 4_000_000), (False, 32 * 1024)])
def test_only_a_small_receive_buffer_on_this_host_gets_small_pieces(
    near: bool, buffer_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces: list[int] = []
    send = PlainStream.send_pieces

    def noted(stream: PlainStream, data: bytes, piece_bytes: int) -> int:
        pieces.append(piece_bytes)
        return send(stream, data, piece_bytes)

    with connected(buffer_bytes) as ends:
        stage = Stage(*ends, asked=near)
        stage.outlet._small.left_bytes = 0  # a remote one is not new
        stage.goes_on(3)
        stage.outlet.pace(stage.now)
        monkeypatch.setattr(PlainStream, "send_pieces", noted)
        stage.outlet._small.left_bytes = 0
        stage.goes_on(1)
    assert set(pieces) == ({CRAMPED_BYTES} if near and buffer_bytes < 100_000 else set())


def test_little_is_copied_and_read_for_a_small_receive_buffer() -> None:
    """A lane offers megabytes at once. Copies of them, for 300 clients that take a little each, held up all for 0.4 s.
    """
    read: list[int] = []

    def note(start: int, stop: int) -> bytes:
        read.append(stop - start)
        return bytes(stop - start)

    spill: Any = SimpleNamespace(fd=0, read=note)
    views = [bytes(4_000_000), bytes(4_000_000)]
    with connected(32 * 1024) as ends:
        outlet = Stage(*ends).outlet
        assert outlet.far_end.near
        tracemalloc.start()
        try:
            assert 0 < outlet.send(views, 8_000_000) <= TRIED_BYTES
            assert 0 <= outlet.send_file(spill, 0, 4_000_000) <= TRIED_BYTES
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak_bytes < 4 * TRIED_BYTES
    assert read == [TRIED_BYTES]


def test_a_connection_that_ends_is_looked_at_no_more(pair: tuple[socket.socket, socket.socket]) -> None:
    stage = Stage(*pair)
    stage.goes_on(STANDS_S + 4)
    assert stage.looks.peers == 1
    stage.outlet._become(ConnectionState.CLOSED)
    assert stage.looks.peers == 0
    taken = stage.outlet.taken_bytes
    stage.now += 1
    for _, call in stage.timers:
        call()
    assert stage.outlet.taken_bytes == taken
