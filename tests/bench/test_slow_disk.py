"""A broker whose disk does not come to an end with a sync: who waits for it waits, and nobody else does."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from bench.disk import sync_ns
from bench.peers.every import EVERY as PEERS
from bench.peers.peer import Running, again, start
from bench.wires.amqp import declaration, short_string
from bench.wires.durable import DURABLE, AmqpDurable
from bench.wires.mqtt import Mqtt
from bench.wires.packets import encode_pingreq
from bench.wires.wire import joined, take
from bench.workloads.stall import SlowHeadway

pytestmark = pytest.mark.usefixtures("copied")
QUEUE = ("bench", "kept")
FOR_EVER_S = 10_000.0
PINGS = 20


@pytest.fixture
def slow() -> Iterator[Running]:
    with start(SlowHeadway(FOR_EVER_S).durable()) as running:
        yield running


def opened(running: Running) -> tuple[AmqpDurable, socket.socket]:
    wire = running.peer.durable_wire
    assert isinstance(wire, AmqpDurable)
    return wire, wire.open(running.peer.durable_port(running.instance), "publisher")


def publisher(running: Running) -> socket.socket:
    """That has published one persistent message, and wants it confirmed."""
    wire, sock = opened(running)
    wire.declare(sock, QUEUE)
    wire.confirms(sock)
    sock.sendall(wire.publication(sock, QUEUE, b"x"))
    return sock


def test_pings_are_answered_while_a_sync_goes_on_and_on(slow: Running) -> None:
    wire, waiting = opened(slow)
    with waiting, Mqtt().open(slow.port, "ping") as sock:
        waiting.sendall(declaration(short_string(joined(QUEUE)), DURABLE) + wire.publication(waiting, QUEUE, b"x"))
        waiting.setblocking(False)
        for _ in range(PINGS):
            sock.sendall(encode_pingreq())
            assert take(sock, 2) == b"\xd0\x00"
        with pytest.raises(BlockingIOError):
            waiting.recv(1)


def test_what_was_confirmed_is_there_again_after_a_kill() -> None:
    with start(PEERS["headway-amqp"].durable()) as running:
        wire = running.peer.durable_wire
        assert wire is not None
        with publisher(running) as sock:
            assert take(sock, 21)[7:11] == b"\x00\x3c\x00\x50", "confirmed"
        pids = running.process.pids
        with again(running) as restarted, wire.open(restarted.port, "count") as sock:
            assert not set(pids) & set(restarted.process.pids)
            assert wire.count(sock, QUEUE) == 1
        assert sync_ns(running.instance.folder) >= 0


def test_without_a_journal_the_same_traffic_is_kept_nowhere() -> None:
    peer = PEERS["headway"]
    plain, kept = peer.durable(journal=False), peer.durable()
    assert kept.config.startswith(plain.config)
    assert "[journal]" in kept.config
    assert "[journal]" not in plain.config
    with start(plain) as running:
        with publisher(running) as sock:
            take(sock, 21)
        assert not (running.instance.folder / "journal").exists()
