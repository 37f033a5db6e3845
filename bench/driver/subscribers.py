"""The healthy subscribers: one process reads all their sockets, in large pieces, and counts bytes."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from bench.driver.worker import cpu_s, say
from bench.wires.wire import Frame, Levels, Wire

BUFFER_BYTES = 256 * 1024
QUIET_S = 3.0
"""The end, once the publisher has stopped: when all has been delivered, or nothing has come for so long ..."""
LOOK_S = 0.5
DRAIN_S = 30.0
"""... or after this time; then records that are still in the broker count as lost, and ``drained`` is False."""


def count(
    pipe: Connection, wire: Wire, port: int, filters: list[Levels], number: int, frame: Frame
) -> dict[str, Any]:
    """Runs ``number`` subscribers, in turn on the filters. Told that the publisher has stopped, it notes what has come
    until then, and goes on until nothing more comes."""
    socks = opened(wire, port, filters, number)
    end = wire.ends_with
    frame_bytes = 1 if end else frame.size_bytes
    taken = dict.fromkeys(socks, -frame.first_bytes)
    buffer = bytearray(BUFFER_BYTES)
    readers = {fd: sock.recv_into for fd, sock in socks.items()}

    def read(fd: int) -> bool:
        got = readers[fd](buffer)
        taken[fd] += buffer.count(end, 0, got) if end else got
        return got > 0

    reader = _acknowledging(wire, socks, filters, frame_bytes, read, taken) if wire.ack_every else read
    told = _Loop(pipe, socks, reader, lambda: max(0, sum(taken.values()) // frame_bytes)).run()
    return told | {"deliveries": sum(max(0, bytes_ // frame_bytes) for bytes_ in taken.values())}


def _acknowledging(
    wire: Wire, socks: dict[int, socket.socket], filters: list[Levels], frame_bytes: int,
    read: Callable[[int], bool], taken: dict[int, int],
) -> Callable[[int], bool]:  # fmt: skip
    """Wraps ``read``: sends the acknowledgements that are due then."""
    every_bytes = wire.ack_every * frame_bytes
    answers = {fd: wire.acknowledgement(sock, filters[n % len(filters)]) for n, (fd, sock) in enumerate(socks.items())}
    due = dict.fromkeys(socks, every_bytes)
    held = dict.fromkeys(socks, b"")
    """Acknowledgements that a broker which does not read has not taken yet."""

    def read_and_acknowledge(fd: int) -> bool:
        more = read(fd)
        if taken[fd] >= due[fd]:
            times = 1 + (taken[fd] - due[fd]) // every_bytes
            due[fd] += times * every_bytes
            rest = memoryview(held[fd] + answers[fd] * times)
            held[fd] = bytes(rest[_sent(socks[fd], rest) :])
        return more

    return read_and_acknowledge


def _sent(sock: socket.socket, data: memoryview) -> int:
    try:
        return sock.send(data)
    except BlockingIOError:
        return 0


def stamps(
    pipe: Connection, wire: Wire, port: int, topic: Levels, number: int, frame: Frame, warm_up_s: float
) -> dict[str, Any]:
    """Runs ``number`` subscribers that read each delivery's time stamp; returns percentiles after the warm-up."""
    socks = opened(wire, port, [topic], number)
    buffer = bytearray(BUFFER_BYTES)
    view = memoryview(buffer)
    readers = {fd: sock.recv_into for fd, sock in socks.items()}
    rests: dict[int, bytes] = dict.fromkeys(socks, b"")
    each = struct.Struct(f">{frame.payload_at}xq{frame.size_bytes - frame.payload_at - 8}x")
    size, noise = frame.size_bytes, wire.noise
    late: list[int] = []
    taken = dict.fromkeys(socks, -frame.first_bytes)
    unlike = dict.fromkeys(socks, frame.first_bytes + size if frame.first_bytes else 0)
    """The bytes that are still to come of the first delivery, where it differs."""
    warm_ns = 0
    clock = time.monotonic_ns

    def read(fd: int) -> bool:
        nonlocal warm_ns
        got = readers[fd](buffer)
        now = clock()
        taken[fd] += got
        data: bytes | memoryview = view[:got]
        if unlike[fd]:
            data = data[unlike[fd] :]
            unlike[fd] -= got - len(data)
        if rests[fd] or len(data) % size:
            whole = rests[fd] + bytes(data)
            if noise and noise in whole:
                whole = whole.replace(noise, b"")
            cut = len(whole) - len(whole) % size
            data, rests[fd] = whole[:cut], whole[cut:]
        if not warm_ns:
            warm_ns = now + int(warm_up_s * 1e9)
        for (stamp,) in each.iter_unpack(data):
            if stamp >= warm_ns:
                late.append(now - stamp)
        return got > 0

    reader = _acknowledging(wire, socks, [topic], size, read, taken) if wire.ack_every else read
    told = _Loop(pipe, socks, reader, lambda: max(0, sum(taken.values()) // size)).run()
    late.sort()
    return told | {"deliveries": sum(max(0, bytes_ // size) for bytes_ in taken.values())} | percentiles(late)


def percentiles(ordered: list[int]) -> dict[str, int]:
    """Returns percentiles of ordered times, ns: each the shortest that so many in a thousand do not exceed."""
    if not ordered:
        return {}
    shares = {"p50_ns": 500, "p99_ns": 990, "p999_ns": 999, "max_ns": 1000}
    return {name: ordered[-(-len(ordered) * share // 1000) - 1] for name, share in shares.items()}


def reader_of(
    wire: Wire, sock: socket.socket, filter: Levels, frame: Frame
) -> Callable[[int], bool]:
    """Returns what reads one subscriber's socket, and acknowledges what is due then."""
    fd, buffer = sock.fileno(), bytearray(BUFFER_BYTES)
    taken = {fd: -frame.first_bytes}

    def read(fd: int) -> bool:
        got = sock.recv_into(buffer)
        taken[fd] += got
        return got > 0

    return _acknowledging(wire, {fd: sock}, [filter], frame.size_bytes, read, taken) if wire.ack_every else read


def opened(wire: Wire, port: int, filters: list[Levels], number: int) -> dict[int, socket.socket]:
    socks = {}
    for index in range(number):
        sock = wire.open(port, f"healthy-{index}")
        wire.subscribe(sock, filters[index % len(filters)])
        sock.setblocking(False)
        socks[sock.fileno()] = sock
    return socks


class _Loop:
    """Reads whatever comes until all is drained."""

    def __init__(
        self, pipe: Connection, socks: dict[int, socket.socket], read: Callable[[int], bool], total: Callable[[], int]
    ) -> None:
        self._pipe, self._socks, self._read, self._total = pipe, socks, read, total
        self._poll = select.epoll()
        for fd in socks:
            self._poll.register(fd, select.EPOLLIN)
        self._poll.register(pipe.fileno(), select.EPOLLIN)
        self.disconnected = 0

    def run(self) -> dict[str, Any]:
        """Begins to count its CPU time when told ``go``, and to end when told how many deliveries there are in all.
        Says how many there are, or how many subscribers were cut off, when asked (``count``, ``lost``)."""
        say(self._pipe, "ready")
        poll, read, control = self._poll.poll, self._read, self._pipe.fileno()
        stopped = last = 0.0
        wanted: Any = 0
        told: dict[str, Any] = {}
        cpu = cpu_s()
        while True:
            events = poll(LOOK_S)
            for fd, _ in events:
                if fd != control:
                    try:
                        if not read(fd):
                            self._gone(fd)
                    except BlockingIOError:
                        pass
                    except ConnectionError:
                        self._gone(fd)
                elif (word := self._pipe.recv()) == "go":
                    cpu, began = cpu_s(), time.monotonic()
                elif word == "count":
                    say(self._pipe, self._total())
                elif word == "lost":
                    say(self._pipe, self.disconnected)
                else:
                    wanted, stopped = word, time.monotonic()
                    last = stopped
                    told = {"seconds": stopped - began, "at_stop": self._total(), "cpu_s": cpu_s() - cpu}
            if stopped:
                now = time.monotonic()
                complete = self._total() >= wanted
                if events:
                    last = now
                if complete or now - last >= QUIET_S or now - stopped > DRAIN_S:
                    drained = complete or not events
                    return told | {"drain_s": last - stopped, "drained": drained, "disconnected": self.disconnected}

    def _gone(self, fd: int) -> None:
        self._poll.unregister(fd)
        self.disconnected += 1
