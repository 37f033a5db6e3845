"""What a peer on this host has not read, as the kernel's table of sockets tells; real sockets throughout."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

import pytest
from tests.interop.waiting import until

from headway.server.progress import REMOTE, PeerProgress, PeerSocket, PeerSockets, Reading, TcpInfo

LOOK_S = 0.25
Pair = tuple[socket.socket, socket.socket]


def unread_by(peer: PeerSocket) -> int | None:
    receipt = peer.receipt()
    return None if receipt is None else receipt.unread_bytes


@pytest.fixture
def table() -> Iterator[PeerSockets]:
    table = PeerSockets()
    yield table
    table.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as far:
        near, _ = server.accept()
        with near:
            yield near, far


def test_what_is_unread_is_known_to_the_byte(table: PeerSockets, pair: Pair) -> None:
    near, far = pair
    peer = table.of(near)
    near.sendall(b"x" * 5000)
    until(lambda: unread_by(peer) == 5000, 10, "the bytes do not arrive")
    far.recv(1234)
    assert unread_by(peer) == 5000 - 1234
    assert peer.near
    assert TcpInfo(near, peer).read_bytes == 1234


@pytest.mark.parametrize(("buffer_bytes", "cramped"), [(32 * 1024, True), (None, False), (1_000_000, False)])
def test_a_receive_buffer_smaller_than_usual_is_known(
    table: PeerSockets, pair: Pair, buffer_bytes: int | None, cramped: bool
) -> None:
    near, far = pair
    if buffer_bytes is not None:
        far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    peer = table.of(near)
    assert peer.cramped is cramped
    near.sendall(b"x" * 7)
    until(lambda: unread_by(peer) == 7, 10, "what is asked next is not answered")
    far.close()
    until(lambda: unread_by(peer) is None or not peer.cramped, 10, "a peer that is gone has a buffer")


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_listener_for_both_families_knows_peers_of_both(table: PeerSockets, address: str) -> None:
    with (
        socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server,
        socket.create_connection((address, server.getsockname()[1])) as far,
    ):
        near, _ = server.accept()
        with near:
            peer = table.of(near)
            near.sendall(b"x" * 7)
            until(lambda: unread_by(peer) == 7, 10, "the peer is not found")
            far.recv(7)
            assert unread_by(peer) == 0


def test_who_is_not_in_the_table_is_remote_and_not_asked_for_again(table: PeerSockets, pair: Pair) -> None:
    near, far = pair
    peer = table.of(near)
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    far.close()
    until(lambda: unread_by(peer) is None, 10, "a peer that is gone is still found")
    assert not peer.near
    asked: list[bytes] = []
    table.receipt = lambda question: asked.append(question)  # type: ignore[assignment,func-returns-value,method-assign]
    assert unread_by(peer) is None
    assert not asked


def test_a_kernel_that_has_no_memory_for_an_answer_is_asked_again(
    table: PeerSockets, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was known stays so meanwhile: to take all as read for one look would hide what is read after it."""
    near, _ = pair
    peer = table.of(near)
    near.sendall(b"x" * 50)
    until(lambda: unread_by(peer) == 50, 10, "the bytes do not arrive")

    def fails(_question: bytes) -> int:
        raise OSError(errno.ENOBUFS, "no buffer space")

    with monkeypatch.context() as patch:
        patch.setattr(table, "receipt", fails)
        assert unread_by(peer) == 50
    near.sendall(b"x" * 50)
    until(lambda: unread_by(peer) == 100, 10, "the kernel is not asked again")


def test_an_answer_that_came_late_is_not_taken_for_that_of_another_peer(table: PeerSockets, pair: Pair) -> None:
    near, far = pair
    peer, other = table.of(near), table.of(far)
    near.sendall(b"x" * 50)
    until(lambda: unread_by(peer) == 50, 10, "the bytes do not arrive")
    table._netlink.send(other._question)  # type: ignore[union-attr]  # and nobody takes its answer
    assert unread_by(peer) == 50
    assert unread_by(other) == 0


def test_without_access_to_the_table_all_peers_are_remote(pair: Pair) -> None:
    near, _ = pair
    near.sendall(b"x" * 50)
    peer = PeerSockets(used=False).of(near)
    assert not peer.near
    assert unread_by(peer) is None
    assert unread_by(REMOTE) is None
    info = TcpInfo(near)
    assert not info.exact
    assert info.read_bytes == info.acked_bytes


def test_a_slow_reader_never_stands_still(table: PeerSockets, pair: Pair) -> None:
    """Its kernel acknowledges nothing for long, for its buffer is full; what it reads is seen all the same."""
    near, far = pair
    near.setblocking(False)
    peer, progress, reading, now = table.of(near), PeerProgress(), Reading(100.0), 100.0
    with suppress(BlockingIOError):
        while near.send(bytes(65536)):
            pass
    until(lambda: TcpInfo(near).window_closed, 10, "its buffer is not full")
    acked_bytes = TcpInfo(near).acked_bytes
    progress.look(TcpInfo(near, peer), now, now)
    reading.look(TcpInfo(near, peer), now)
    for _ in range(50):
        now += LOOK_S
        far.recv(100)
        info = TcpInfo(near, peer)
        progress.look(info, now, 100.0)
        reading.look(info, now)
        assert now - progress.moved_s <= LOOK_S
        assert now - reading.read_s <= LOOK_S
    assert TcpInfo(near).acked_bytes == acked_bytes, "its kernel tells nothing of it"
    assert progress.usual_pause_s <= LOOK_S
    stopped_s = now
    for _ in range(50):
        now += LOOK_S
        info = TcpInfo(near, peer)
        progress.look(info, now, 100.0)
        reading.look(info, now)
    assert progress.moved_s == pytest.approx(stopped_s, abs=1.1 * LOOK_S)
    assert reading.read_s == pytest.approx(stopped_s, abs=1.1 * LOOK_S)
    assert progress.state(info).window_closed


def test_what_comes_is_not_taken_for_read_before_it_is_acknowledged(table: PeerSockets, pair: Pair) -> None:
    """Acknowledgements are delayed by up to 40 ms: with them less seemed to be read now, and more at the next look."""
    near, far = pair
    near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer = table.of(near)
    near.sendall(b"x" * 500)
    until(lambda: unread_by(peer) == 500, 10, "the bytes do not arrive")
    far.recv(100)
    for _ in range(300):
        near.sendall(b"x" * 50)
        assert TcpInfo(near, peer).read_bytes == 100
