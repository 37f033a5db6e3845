"""The progress of a peer, as its connection follows it; against a real socket where the kernel has a say."""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

import pytest

from headway.core.policy import RARE_S
from headway.server.progress.peer_progress import (
    LOSS_WINDOW_S,
    PIECES_A_S,
    PIECES_MAX,
    SMALL_BYTES,
    TRIED_BYTES,
    PeerProgress,
    PieceBudget,
)
from headway.server.progress.tcp_info import TcpInfo


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as far:
        near, _ = server.accept()
        with near:
            yield near, far


def info_of(pair: tuple[socket.socket, socket.socket], **figures: int) -> TcpInfo:
    """The kernel's figures, some of them put in their place."""
    info = TcpInfo(pair[0])
    info.segment, info.window, info.unsent_bytes = 1000, 50_000, 1000
    for name, value in figures.items():
        setattr(info, name, value)
    info.read_bytes = info.acked_bytes  # nobody knows better of a remote peer
    return info


SO_ATTACH_FILTER = 26
Pair = tuple[socket.socket, socket.socket]


def test_the_kernel_knows_what_the_peer_has(pair: Pair) -> None:
    near, far = pair
    near.sendall(b"x" * 5000)
    far.recv(5000, socket.MSG_WAITALL)
    info = TcpInfo(near)
    assert info.complete
    assert info.acked_bytes == info.sent_bytes == 5000
    assert not info.window_closed


def test_a_reader_that_stops_has_a_closed_window(pair: Pair) -> None:
    near, _ = pair
    near.settimeout(1.0)  # nothing has been taken for so long
    with suppress(TimeoutError):
        while True:
            near.send(b"x" * 65536)
    assert TcpInfo(near).window_closed
    assert PeerProgress().state(TcpInfo(near)).window_closed


def test_pauses_between_steps_are_its_usual_ones_and_fade(pair: Pair) -> None:
    progress = PeerProgress()
    for number in range(21):  # a step every 2 s, looks every 0.5 s
        progress.look(info_of(pair, acked_bytes=200_000 * (number // 4)), number / 2, 0.0)
    assert progress.moved_s == 10.0
    assert progress.usual_pause_s == pytest.approx(2.0, abs=0.1)
    assert progress.lump_bytes() == 200_000
    for number in range(21, 81):  # a step at each look
        progress.look(info_of(pair, acked_bytes=200_000 * number), number / 2, 0.0)
    assert progress.usual_pause_s == pytest.approx(1.0, abs=0.1)
    for number in range(81, 201):
        progress.look(info_of(pair, acked_bytes=200_000 * 80), number / 2, 0.0)
    assert progress.usual_pause_s == pytest.approx(1.0, abs=0.1), "it stands still"


@pytest.mark.parametrize(("small", "usual_s"), [(False, 4.0), (True, 2.0)])
def test_a_full_lump_takes_longer_than_a_small_one(pair: Pair, small: bool, usual_s: float) -> None:
    progress = PeerProgress()
    progress.note_pieces(small)
    for number in range(23):
        progress.look(info_of(pair, acked_bytes=57_344 * (number // 4)), number / 2, 0.0)
    assert progress.usual_pause_s == pytest.approx(usual_s, abs=0.1), "twice as much in twice the time"
    assert progress.has_pace
    progress.note_pieces(False)
    assert progress.usual_pause_s == pytest.approx(4.0, abs=0.1), "large pieces may come next"


def test_who_takes_all_that_is_there_would_not_take_longer_for_a_full_lump(pair: Pair) -> None:
    """As one whose feed is slow, or who gets the latest records now and then."""
    progress = PeerProgress()
    for number in range(41):  # what comes once in 2 s waits for 1.5 s
        waits = number % 4 != 0
        info = info_of(pair, acked_bytes=20_000 * (number // 4), unsent_bytes=500 if waits else 0)
        progress.look(info, number / 2, 0.0, False)
    assert progress.usual_pause_s == pytest.approx(2.0, abs=0.1)
    assert progress.lump_bytes() == 20_000


def test_a_pause_begins_when_something_waits(pair: Pair) -> None:
    progress = PeerProgress()
    for number in range(41):  # something comes once in 2 s, and is taken within half a second
        waits = number % 4 == 3
        info = info_of(pair, acked_bytes=20_000 * (number // 4), unsent_bytes=500 if waits else 0)
        progress.look(info, number / 2, 0.0, False)
    assert progress.usual_pause_s <= 1.0
    assert not progress.settles


def test_what_is_taken_at_once_after_a_pause_is_one_step(pair: Pair) -> None:
    """As of a client that reads all there is once in three seconds: a look finds it in the middle of that."""
    progress, acked_bytes = PeerProgress(), 0
    for number in range(83):
        if number % 8 in {0, 1}:
            acked_bytes += 60_000
        progress.look(info_of(pair, acked_bytes=acked_bytes), number / 2, 0.0)
    assert progress.usual_pause_s == pytest.approx(3.5, abs=0.2)
    assert progress.lump_bytes() == 120_000


def test_a_long_stop_does_not_make_long_stops_usual(pair: Pair) -> None:
    progress = PeerProgress()
    for number in range(200):
        progress.look(info_of(pair, acked_bytes=1000 if number < 199 else 200_000), number / 2, 0.0)
    assert progress.usual_pause_s == RARE_S


def test_after_a_time_without_looks_nothing_is_known(pair: Pair) -> None:
    progress = PeerProgress()
    progress.look(info_of(pair, acked_bytes=1000), 1.0, 0.5)
    progress.look(info_of(pair, acked_bytes=9000), 50.0, 49.5)
    assert progress.moved_s == 49.5
    assert progress.usual_pause_s == 0.0
    assert progress.stands_since_s(60.0) == 60.0, "our kernel took bytes, and nobody has looked since"


@pytest.mark.parametrize(
    ("figures", "retransmitting", "closed"),
    [
        ({}, False, False),
        ({"window": 999}, False, True),
        ({"retransmits": 4, "heard_ms": 3000}, True, False),
        ({"retransmits": 4, "heard_ms": 3000, "window": 0}, True, False),
        ({"retransmits": 1, "heard_ms": 300, "window": 0}, False, True),
        ({"probes": 1, "heard_ms": 5000, "window": 0}, False, True),
        ({"probes": 3, "heard_ms": 9000, "window": 0}, True, False),
    ],
)
def test_what_a_verdict_is_told(pair: Pair, figures: dict[str, int], retransmitting: bool, closed: bool) -> None:
    state = PeerProgress().state(info_of(pair, **figures))
    assert (state.retransmitting, state.window_closed) == (retransmitting, closed)


@pytest.mark.parametrize(("window", "lossy"), [(50_000, True), (0, False)])
def test_losses_count_while_the_window_is_open(pair: Pair, window: int, lossy: bool) -> None:
    progress = PeerProgress()
    for number in range(1, 20):
        figures = {"sent_bytes": 10_000 * number, "resent_bytes": 1000 * number, "window": window, "unacked": 1}
        info = info_of(pair, acked_bytes=number, **figures)
        progress.look(info, number / 2, 0.0)
    assert LOSS_WINDOW_S < 10
    assert progress.state(info).retransmitting is lossy


def test_what_the_peers_host_had_already_was_not_lost(pair: Pair) -> None:
    """A reader that stops is acknowledged late by its host, and our kernel sends the last segment again and again."""
    progress = PeerProgress()
    for number in range(1, 20):
        figures = {"sent_bytes": 10_000 * number, "resent_bytes": 1000 * number, "resent_segments": number,
                   "twice_segments": number - 1}  # fmt: skip
        info = info_of(pair, acked_bytes=number, **figures)
        progress.look(info, number / 2, 0.0)
        assert not progress.state(info).retransmitting


def test_the_kernel_tells_what_came_twice(pair: Pair) -> None:
    """Real figures: nothing of it is lost, and some of it may be sent twice."""
    near, _ = pair
    near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(400):
        near.send(b"x" * 100)
    info = TcpInfo(near)
    assert info.sent_segments >= 1
    assert info.twice_segments <= info.resent_segments <= info.sent_segments
    assert not info.loses


def test_losses_are_no_cause_where_the_peer_has_all_that_was_sent(pair: Pair) -> None:
    """As of a worker that acknowledges nothing, after some segments of a busy machine were sent twice."""
    progress = PeerProgress()
    for number in range(1, 20):
        figures = {"sent_bytes": 10_000 * number, "resent_bytes": 1000 * number, "window": 50_000}
        progress.look(info_of(pair, acked_bytes=10_000 * number, **figures), number / 2, 0.0)
    for unacked, unsent_bytes, lossy in ((1, 0, True), (0, 1, True), (0, 0, False)):
        figures = {"sent_bytes": 190_000, "resent_bytes": 19_000, "window": 50_000, "unacked": unacked}
        info = info_of(pair, acked_bytes=190_000, unsent_bytes=unsent_bytes, **figures)
        assert progress.state(info).retransmitting is lossy


def test_a_peer_that_reads_nothing_has_segments_that_are_not_acknowledged(pair: Pair) -> None:
    near, far = pair
    assert TcpInfo(near).unacked == 0
    nothing = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))
    far.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(nothing)))
    near.sendall(b"x" * 1000)  # and is lost
    assert TcpInfo(near).unacked == 1


def silent_after(pair: Pair, seconds: float, **figures: int) -> bool:
    """Looks at a peer whose window is closed, every half second, for so long."""
    progress, looks = PeerProgress(), int(2 * seconds)
    for number in range(looks + 1):
        info = info_of(pair, acked_bytes=1000, window=0, **{"heard_ms": 2000 + 500 * number, **figures})
        progress.look(info, number / 2, 0.0)
    assert not progress.silent(info_of(pair)), "it has answered since then"
    return progress.silent(info) and progress.state(info).retransmitting


def test_a_host_that_leaves_a_probe_unanswered_is_silent(pair: Pair) -> None:
    assert not silent_after(pair, 10, probes=0)
    assert silent_after(pair, 1.5, probes=1)
    assert not silent_after(pair, 0.5, probes=1), "it may answer yet"
    assert not silent_after(pair, 10, probes=1, heard_ms=1300), "a host answers no two probes in half a second"


def test_on_a_line_that_loses_packets_one_probe_says_little(pair: Pair) -> None:
    lost = {"sent_segments": 1000, "resent_segments": 12, "twice_segments": 2}
    assert not silent_after(pair, 10, probes=1, **lost)
    assert silent_after(pair, 1.5, probes=2, **lost)
    assert silent_after(pair, 1.5, probes=1, **{**lost, "twice_segments": 11}), "nearly all came twice"


def test_a_probe_that_was_answered_later_does_not_count(pair: Pair) -> None:
    progress = PeerProgress()
    for number in range(20):
        probes = 0 if number % 2 else 1
        info = info_of(pair, acked_bytes=1000, window=0, heard_ms=2000 if probes else 100, probes=probes)
        progress.look(info, number / 2, 0.0)
        assert not progress.silent(info)


def test_a_host_is_silent_since_our_kernel_began_to_try_again(pair: Pair) -> None:
    progress = PeerProgress()
    for number in range(20):  # its steps get longer, and say nothing of the time since the last one
        info = info_of(pair, acked_bytes=1000, retransmits=3 if number < 10 else 4, heard_ms=2000)
        info.tried_s = 1.4 if number < 10 else 3.0
        progress.look(info, number / 2, 0.0)
        assert progress.silent_s == -1.4
    progress.look(info_of(pair, acked_bytes=2000), 10.0, 0.0)
    assert progress.silent_s > 1e9


def test_small_pieces_are_few_for_all_together() -> None:
    budget = PieceBudget()
    each = TRIED_BYTES // SMALL_BYTES
    assert sum(budget.take(10 * TRIED_BYTES, 10.0) for _ in range(1000)) == PIECES_MAX // each
    assert not budget.take(TRIED_BYTES, 10.0)
    assert sum(budget.take(TRIED_BYTES, 10.1) for _ in range(1000)) - PIECES_A_S // 10 // each in {0, 1}
    assert sum(budget.take(TRIED_BYTES, 99.0) for _ in range(1000)) == PIECES_MAX // each, "not what was saved up"


def test_one_record_that_is_sent_again_is_no_loss(pair: Pair) -> None:
    progress = PeerProgress()
    for number in range(1, 20):  # as when the acknowledgement of the last one of a full window comes late
        figures = {"sent_bytes": 11_000, "resent_bytes": 1000 if number > 3 else 0, "window": 50_000}
        info = info_of(pair, acked_bytes=10_000, **figures)
        progress.look(info, number / 2, 0.0)
        assert not progress.state(info).retransmitting


@pytest.mark.parametrize(("retransmits", "usual_s"), [(0, 4.0), (3, 0.5)])
def test_a_pause_in_which_bytes_are_sent_again_is_no_habit(pair: Pair, retransmits: int, usual_s: float) -> None:
    progress = PeerProgress()
    for number in range(17):  # a step of a full lump at each look, then one after 4 s
        steps = number if number < 8 else 8 if number < 16 else 9
        info = info_of(pair, acked_bytes=200_000 * steps, retransmits=retransmits if 8 < number < 16 else 0)
        progress.look(info, number / 2, 0.0)
    assert progress.moved_s == 8.0
    assert progress.usual_pause_s == pytest.approx(usual_s, rel=0.2)


def test_after_large_pieces_small_ones_tell_too_little_until_those_are_read(pair: Pair) -> None:
    progress = PeerProgress()
    progress.look(info_of(pair, acked_bytes=115_000), 1.0, 0.0)
    assert not progress.settles
    progress.change_over(info_of(pair, acked_bytes=115_000))
    assert progress.settles
    progress.look(info_of(pair, acked_bytes=115_000 + 49_000), 1.5, 0.0)
    assert progress.settles
    progress.look(info_of(pair, acked_bytes=115_000 + 51_000), 2.0, 0.0)
    assert not progress.settles
    progress.change_over(info_of(pair, acked_bytes=170_000))
    assert not progress.settles, "all that it has is small"


def test_those_who_have_just_come_need_pieces_most() -> None:
    budget = PieceBudget()
    assert budget.plenty(0.0)
    assert all(budget.take(TRIED_BYTES, 0.0) for _ in range(3))
    assert not budget.plenty(0.0)
    assert budget.take(TRIED_BYTES, 0.0)
    assert budget.plenty(1.0)


def test_who_moved_while_the_broker_was_stopped_stands_still_no_longer_than_that(pair: Pair) -> None:
    """Its kernel's buffer was full before, so the broker itself has sent nothing for long."""
    progress = PeerProgress()
    for number in range(20):
        progress.look(info_of(pair, acked_bytes=1000 * number), 100.0 + number / 2, 90.0)
    progress.look(info_of(pair, acked_bytes=40_000), 115.0, 90.0)
    assert progress.moved_s == 109.5, "the last look before"
    progress.look(info_of(pair, acked_bytes=40_000), 200.0, 120.0)
    assert progress.moved_s == 120.0, "it did not move, but took bytes meanwhile"
