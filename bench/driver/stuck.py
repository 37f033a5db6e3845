"""The stuck subscribers, which subscribe and never read; and idle connections."""

from __future__ import annotations

import re
import select
import socket
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench.driver.subscribers import reader_of
from bench.driver.worker import say
from bench.wires.wire import Frame, Levels, Wire

RECEIVED = re.compile(r": [0-9A-F]*7F:([0-9A-F]{4}) [0-9A-F]*7F:[0-9A-F]{4} 01 [0-9A-F]{8}:([0-9A-F]{8}) ")
ESTABLISHED = re.compile(r": [0-9A-F]*7F:([0-9A-F]{4}) [0-9A-F]*7F:([0-9A-F]{4}) 01 ")


def hold(
    pipe: Connection, wire: Wire, port: int, filters: list[Levels], number: int, look_s: float | None
) -> dict[str, Any]:
    """Holds ``number`` of them. ``gone``: how many sockets the broker has closed, and when, seconds from ``go``.

    Who does not read is not told that the other end is gone; so the kernel is asked, about the broker's ends, every
    ``look_s``. It takes some milliseconds to answer, so where these matter it is asked at the end only (None).
    """
    socks = []
    for index in range(number):
        sock = wire.open(port, f"stuck-{index}")
        wire.subscribe(sock, filters[index % len(filters)])
        socks.append(sock)
    ours = {sock.getsockname()[1] for sock in socks}
    say(pipe, "ready")
    pipe.recv()
    began = time.monotonic()
    gone_s: list[float] = []
    while True:
        told = pipe.poll(look_s)
        now = time.monotonic() - began
        there = ours & served_by(port)
        gone_s += [now] * (len(ours) - len(there))
        ours = there
        if told:
            first, last = min(gone_s, default=None), max(gone_s, default=None)
            return {"gone": len(gone_s), "first_gone_s": first, "last_gone_s": last}


def stop(pipe: Connection, wire: Wire, port: int, topic: Levels, frame: Frame) -> dict[str, Any]:
    """Runs a subscriber as any other, until told to stop; then it reads no more. Told so again, it says whether the
    broker has closed its socket."""
    sock = wire.open(port, "one")
    wire.subscribe(sock, topic)
    sock.setblocking(False)
    ours, read = sock.getsockname()[1], reader_of(wire, sock, topic, frame)
    say(pipe, "ready")
    pipe.recv()
    while not pipe.poll():
        select.select([sock.fileno(), pipe.fileno()], [], [])
        with suppress(BlockingIOError):
            if not read(sock.fileno()):
                break
    pipe.recv()
    pipe.recv()
    return {"gone": ours not in served_by(port)}


def stand(pipe: Connection, wire: Wire, port: int, topic: Levels, number: int) -> dict[str, Any]:
    """Opens ``number`` connections; told to go on, each subscribes."""
    began = time.monotonic()
    socks: list[socket.socket] = [wire.open(port, f"idle-{index}") for index in range(number)]
    say(pipe, "ready")
    say(pipe, {"connect_s": time.monotonic() - began})
    pipe.recv()
    for sock in socks:
        wire.subscribe(sock, topic)
    say(pipe, "ready")
    pipe.recv()
    return {}


def unread_bytes(port: int) -> int:
    """Returns how many bytes the server on this port has been sent and has not read yet."""
    return sum(int(waiting, 16) for near, waiting in RECEIVED.findall(_connections()) if int(near, 16) == port)


def served_by(port: int) -> set[int]:
    """Returns the far ports of the connections that a server on this port has open on the loopback."""
    return {int(far, 16) for near, far in ESTABLISHED.findall(_connections()) if int(near, 16) == port}


def _connections() -> str:
    """Returns all TCP sockets, as the kernel writes them; Java's are IPv6 ones."""
    tables = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
    return "".join(table.read_text() for table in tables if table.exists())
