"""Since when a peer has read nothing, as its window tells; the real kernel's figures where it has a say."""

from __future__ import annotations

import ctypes
import socket
import struct
import time
from collections.abc import Iterator
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from tests.interop.waiting import until

from headway.core.base import Reason
from headway.server.connections.socket_outlet import SocketOutlet
from headway.server.progress.peer_progress import (
    FINE_BYTES,
    GLANCE_S,
    GLANCES_A_S,
    UNKNOWN_S,
    Glances,
    PieceBudget,
    Reading,
)
from headway.server.progress.peer_sockets import PeerSocket, PeerSockets
from headway.server.progress.tcp_info import TcpInfo
from headway.server.transport import PlainStream

UNASKED = PeerSockets(used=False)
SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27
Pair = tuple[socket.socket, socket.socket]
WIDE = 1_000_000
SECOND_BYTES, PIECE_BYTES = 60_000, 1000


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two ends of a connection, the far one with a receive buffer of a megabyte."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as far:
        far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1_048_576)
        far.connect(server.getsockname())
        near, _ = server.accept()
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with near:
            yield near, far


class Outlet(SocketOutlet):
    def close(self, reason: Reason, text: str = "") -> None:
        raise AssertionError(text)

    def _on_writable(self) -> None:
        pass

    def _count_unsent(self, size: int) -> None:
        pass


def acknowledged(near: socket.socket, acked_bytes: int) -> TcpInfo:
    """Returns the kernel's figures when so much has been acknowledged."""
    deadline = time.monotonic() + 10
    while TcpInfo(near).acked_bytes < acked_bytes:
        assert time.monotonic() < deadline, "the peer's host does not acknowledge"
    return TcpInfo(near)


def send(near: socket.socket, size: int) -> TcpInfo:
    """Sends so many bytes. Returns the kernel's figures when all have been acknowledged."""
    acked_bytes = TcpInfo(near).acked_bytes + size
    for _ in range(size // PIECE_BYTES):
        near.sendall(b"x" * PIECE_BYTES, socket.MSG_EOR)  # each is a buffer of its own
    return acknowledged(near, acked_bytes)


def figures(near: socket.socket, acked_bytes: int, window: int, unsent_bytes: int = 0) -> TcpInfo:
    info = TcpInfo(near)
    info.segment, info.acked_bytes, info.window, info.unsent_bytes = 1000, acked_bytes, window, unsent_bytes
    return info


def test_who_reads_nothing_is_known_long_before_its_buffer_is_full(pair: Pair) -> None:
    near, _ = pair
    reading = Reading(0.0)
    for second in range(1, 8):
        reading.look(send(near, SECOND_BYTES), float(second))
    assert reading.read_s <= 2.0, "its kernel widens the window of a new connection at first"


def test_who_reads_all_has_just_read(pair: Pair) -> None:
    near, far = pair
    reading = Reading(0.0)
    for second in range(1, 6):
        info = send(near, SECOND_BYTES)
        far.recv(SECOND_BYTES, socket.MSG_WAITALL)
        reading.look(info, float(second))
    assert reading.read_s >= 4.0


def test_who_stops_later_has_read_until_then_and_reads_when_it_goes_on(pair: Pair) -> None:
    near, far = pair
    reading = Reading(0.0)
    for second in range(1, 11):
        info = send(near, SECOND_BYTES)
        if second <= 5:
            far.recv(SECOND_BYTES, socket.MSG_WAITALL)
        reading.look(info, float(second))
    assert 4.0 <= reading.read_s <= 7.0
    far.recv(5 * SECOND_BYTES, socket.MSG_WAITALL)
    reading.look(send(near, SECOND_BYTES), 11.0)
    assert reading.read_s == 11.0


def test_half_of_what_comes_is_enough_to_be_read(pair: Pair) -> None:
    near, far = pair
    reading = Reading(0.0)
    for second in range(1, 10):
        info = send(near, SECOND_BYTES)
        far.recv(SECOND_BYTES // 2, socket.MSG_WAITALL)
        reading.look(info, float(second))
    assert reading.read_s >= 5.0, "its kernel makes room for several pieces at a time"


def test_an_idle_time_is_none_without_reading(pair: Pair) -> None:
    near, _ = pair
    reading = Reading(0.0)
    reading.look(figures(near, 0, 900), 1.0)
    reading.look(figures(near, 0, 900), 50.0)  # the window of a small buffer is never wider than a segment
    reading.look(figures(near, 0, 900, unsent_bytes=5000), 51.0)
    assert reading.read_s == 51.0, "bytes wait for its window since then"
    reading.look(figures(near, 0, 900, unsent_bytes=5000), 60.0)
    assert reading.read_s == 51.0


def test_a_window_that_was_wide_open_tells_nothing_of_the_time_before(pair: Pair) -> None:
    near, _ = pair
    reading = Reading(0.0)
    reading.look(figures(near, 0, WIDE), 1.0)
    reading.look(figures(near, 100_000, WIDE - 100_000), 30.0)
    assert reading.read_s == 30.0
    reading.look(figures(near, 200_000, WIDE - 190_000), 32.0)
    assert reading.read_s == 30.0


def test_a_network_that_loses_everything_says_nothing_about_reading(pair: Pair) -> None:
    near, _ = pair
    reading = Reading(0.0)
    for second in range(1, 9):
        reading.look(figures(near, 100_000, WIDE, unsent_bytes=50_000), float(second))
    assert reading.read_s == 8.0


def test_several_looks_at_once_are_one(pair: Pair) -> None:
    near, _ = pair
    reading = Reading(0.0)
    for second in range(1, 6):
        for _ in range(3):
            reading.look(figures(near, 100_000 * second, WIDE - 100_000 * second), float(second))
    assert reading.read_s == 2.0, "the first look finds something read, the second nothing unread before it"


def test_a_small_step_waits_for_more_and_counts_after_a_second(pair: Pair) -> None:
    near, _ = pair
    reading = Reading(0.0)
    reading.look(figures(near, 100_000, 0, unsent_bytes=5000), 1.0)
    reading.look(figures(near, 100_000, 0, unsent_bytes=5000), 1.2)
    reading.look(figures(near, 104_000, 0, unsent_bytes=5000), 1.4)
    assert reading.read_s == 1.0
    reading.look(figures(near, 104_000, 0, unsent_bytes=5000), 1.2 + GLANCE_S)
    assert reading.read_s == 1.2 + GLANCE_S


def test_who_was_never_seen_to_read_may_read_seldom(pair: Pair) -> None:
    near, _ = pair
    reading = Reading(0.0)
    reading.look(figures(near, FINE_BYTES, 65_536), 1.0)
    assert reading.usual_pause_s == UNKNOWN_S
    reading.look(figures(near, FINE_BYTES + 20_000, 65_536), 2.0)
    assert reading.usual_pause_s == 0.0
    wide = Reading(0.0)
    wide.look(figures(near, 2 * WIDE, WIDE), 1.0)
    assert wide.usual_pause_s == UNKNOWN_S, "so much may lie in its buffer"


def test_times_without_reading_are_usual_when_they_come_again(pair: Pair) -> None:
    near, _ = pair
    reading = Reading(0.0)
    acked, window = 0, WIDE
    for second in range(1, 61):  # it reads all there is once in four seconds
        acked += 150_000
        window = WIDE if second % 4 == 0 else window - 150_000
        reading.look(figures(near, acked, window), float(second))
    assert reading.usual_pause_s == pytest.approx(3.0, abs=0.3)


def test_all_connections_together_have_so_many_glances_a_second() -> None:
    glances = Glances()
    assert sum(glances.take(5.0 + number / 10_000) for number in range(5000)) == GLANCES_A_S
    assert glances.take(6.1)


def test_no_pause_is_usual_for_a_host_that_answers_nothing(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    near, _ = pair
    near.setblocking(False)
    clock = SimpleNamespace(now_s=100.0)
    host: Any = SimpleNamespace(loop=None, pieces=PieceBudget(), glances=Glances(), peer_sockets=UNASKED,
                                now=lambda: clock.now_s)
    outlet = Outlet(host, PlainStream(near), clock.now_s)
    outlet.blocked = True
    told = {"probes": 0, "heard_ms": 0}

    def info_of(sock: socket.socket, _far: PeerSocket) -> TcpInfo:
        info = figures(sock, FINE_BYTES, 0, unsent_bytes=5000)
        info.probes, info.heard_ms = told["probes"], told["heard_ms"]
        return info

    monkeypatch.setattr("headway.server.connections.socket_outlet.TcpInfo", info_of)
    for _ in range(10):
        clock.now_s += 0.5
        pace = outlet.pace(clock.now_s)
    assert pace.unread_pause_s == UNKNOWN_S
    told.update(probes=1, heard_ms=6000)
    for _ in range(4):
        clock.now_s += 0.5
        pace = outlet.pace(clock.now_s)
    assert (pace.usual_pause_s, pace.unread_pause_s) == (0.0, 0.0)
    assert outlet.peer().retransmitting


def test_a_kernel_takes_no_more_for_a_host_that_answers_nothing(pair: Pair) -> None:
    """Real losses: a cable is pulled, and the feed is slow. What comes then waits in the broker, within seconds."""
    near, far = pair
    near.setblocking(False)
    loop: Any = SimpleNamespace(add_writer=lambda *_: None, remove_writer=lambda *_: None)
    host: Any = SimpleNamespace(loop=loop, pieces=PieceBudget(), glances=Glances(), peer_sockets=UNASKED,
                                now=time.monotonic)
    outlet = Outlet(host, PlainStream(near), host.now())

    def sends() -> bool:
        if not outlet.blocked:
            outlet.took(outlet.send([b"x" * PIECE_BYTES], PIECE_BYTES), PIECE_BYTES, host.now())
        return outlet.blocked

    sends()
    acknowledged(near, PIECE_BYTES)
    nothing = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))
    far.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(nothing)))
    began_s = host.now()
    until(sends, 30, "its kernel takes all that comes")
    pace = outlet.pace(host.now())
    assert pace.stands_since_s < inf
    assert began_s - 0.5 <= pace.stands_since_s <= host.now() - 1.0, "since its host answers nothing"
    assert near.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == 1
    far.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
    until(lambda: TcpInfo(near).retransmits == 0, 30, "nothing is acknowledged")
    outlet.pace(host.now())
    assert near.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == 0


def test_an_outlet_knows_it_of_a_client_that_has_not_lagged_yet(pair: Pair) -> None:
    near, far = pair
    near.setblocking(False)
    clock = SimpleNamespace(now_s=100.0)
    host: Any = SimpleNamespace(loop=None, pieces=PieceBudget(), glances=Glances(), peer_sockets=UNASKED,
                                now=lambda: clock.now_s)
    outlet = Outlet(host, PlainStream(near), clock.now_s)
    sent = 0
    for second in range(8):
        clock.now_s += 1.0
        for _ in range(SECOND_BYTES // PIECE_BYTES):
            taken = outlet.send([b"x" * PIECE_BYTES], PIECE_BYTES)
            assert outlet.took(taken, PIECE_BYTES, clock.now_s)
            sent += taken
        acknowledged(near, sent)
        if second < 3:
            far.recv(SECOND_BYTES, socket.MSG_WAITALL)
    outlet.blocked = True  # its kernel's buffer is full now
    outlet.progress_s = clock.now_s
    pace = outlet.pace(clock.now_s + 0.2)
    assert pace.stands_since_s == clock.now_s
    assert pace.unread_since_s < inf
    assert 103.0 <= pace.unread_since_s <= 106.0
    assert pace.unread_pause_s == UNKNOWN_S


def exact(read_bytes: int, unread_bytes: int) -> Any:
    """The kernel's figures of a peer on this host, whose kernel takes all that comes."""
    return SimpleNamespace(exact=True, acked_bytes=read_bytes + unread_bytes, window=WIDE, unsent_bytes=0,
                           read_bytes=read_bytes, unread_bytes=unread_bytes)  # fmt: skip


@pytest.mark.parametrize("glance_s", [0.2, 1.0, 2.0])
@pytest.mark.parametrize("sleeps_s", [15, 30])
def test_a_device_that_wakes_once_in_a_while_has_a_rhythm(glance_s: float, sleeps_s: int) -> None:
    """It is awake for 1.5 s, and looks are so seldom that it seems to be awake for twice as long."""
    reading, read_bytes, came_bytes, glanced_s = Reading(0.0), 0, 0, 0.0
    for tick in range(round(5 * 20 * (sleeps_s + 1.5))):
        now = tick / 20
        came_bytes += 1000
        awake = now % (sleeps_s + 1.5) < 1.5
        read_bytes = came_bytes if awake else read_bytes
        if now - glanced_s >= (0.2 if awake else glance_s):
            reading.look(exact(read_bytes, came_bytes - read_bytes), now)
            glanced_s = now
    assert reading.known_pause_s >= 10.0
