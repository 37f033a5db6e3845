"""Links: the sockets of the set's consumers. A link reads at a pace, as the application behind it would.

Nothing waits for a socket: a link looks at it every ``LOOK_S``, so that a read which is given up loses no bytes, and
sixty links cost one process a small part of a core. Kernel buffers are the defaults unless a kind says otherwise.
"""

from __future__ import annotations

import asyncio
import ctypes
import heapq
import socket
import struct
from collections import deque
from contextlib import suppress
from math import inf

from bench.behaviours.consumers.frames import AmqpFrames, MqttFrames
from bench.wires.amqp import method
from bench.wires.packets import encode_ack

LOOK_S = 0.025
SAVED_S = 0.25
"""A reader that finds nothing saves up the pace of this long at most."""
READ_BYTES = 65_536
SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27
LOAD_RANDOM = (0x20, 0, 0, 0xFFFFF000 + 56)  # A = a random number of 32 bits
ALL, NOTHING = (0x06, 0, 0, 0xFFFFFFFF), (0x06, 0, 0, 0)


class Gone(Exception):
    """The broker has closed the connection."""


class Link:
    end = inf
    """When the run ends, on the loop's clock; it reads no longer."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.read_bytes = 0

    async def read(self, until: float, rate: float = inf) -> None:
        """Reads so many bytes a second until then, on the loop's clock. Raises Gone."""
        clock = asyncio.get_running_loop().time
        allowance, last = 0.0, clock()
        while (now := clock()) < min(until, self.end):
            allowance = min(allowance + rate * (now - last), rate * SAVED_S) if rate != inf else inf
            last = now
            allowance -= self.take(allowance)
            self.settle(now)
            await asyncio.sleep(LOOK_S)

    def take(self, most: float) -> int:
        """Reads what is there, up to so many bytes. Returns how many."""
        taken = 0
        with suppress(BlockingIOError):
            while taken + 1 <= most:
                try:
                    data = self.sock.recv(int(min(READ_BYTES, most - taken)))
                except ConnectionError:
                    raise Gone from None
                if not data:
                    raise Gone
                taken += len(data)
                self.took(data)
        self.read_bytes += taken
        return taken

    def took(self, data: bytes) -> None:
        """Called with what was read."""

    def settle(self, now: float) -> None:
        """Called at each look: acknowledges what is due."""

    def lose(self, share: float) -> None:
        """Loses this share of the packets that arrive, by a filter in the kernel; 1: all; 0: no longer any."""
        if share <= 0:
            self.sock.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
            return
        lucky = (0x35, 1, 0, int(share * 0xFFFFFFFF))  # jump over NOTHING if A >= K
        code = (NOTHING,) if share >= 1 else (LOAD_RANDOM, lucky, NOTHING, ALL)
        program = b"".join(struct.pack("HBBI", *line) for line in code)
        held = ctypes.create_string_buffer(program)
        self.sock.setsockopt(
            socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", len(code), ctypes.addressof(held))
        )

    def close(self) -> None:
        self.sock.close()

    def kill(self) -> None:
        """Ends the connection as the kernel does when a process is killed that has bytes to read: with a reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


class MqttLink(Link):
    """Acknowledges deliveries at QoS 1 as they come, unless ``silent``; or one after the other, each after
    ``handle_s``; or all together every ``ack_every_s``."""

    def __init__(self, sock: socket.socket, version: int) -> None:
        super().__init__(sock)
        self.silent = False
        self.handle_s = self.ack_every_s = 0.0
        self._frames = MqttFrames(version)
        self._held: deque[int] = deque()
        self._began = self._told = 0.0

    def took(self, data: bytes) -> None:
        ids = self._frames.feed(data)
        if self.handle_s or self.ack_every_s:
            self._held.extend(ids)
        elif not self.silent:
            self._acknowledge(ids)

    def settle(self, now: float) -> None:
        if not self._held or self.silent:
            self._began = now
        elif self.ack_every_s:
            if now - self._told >= self.ack_every_s:
                self._told = now
                self._acknowledge([self._held.popleft() for _ in range(len(self._held))])
        else:
            done = min(len(self._held), int((now - self._began) / self.handle_s))
            self._began += done * self.handle_s
            self._acknowledge([self._held.popleft() for _ in range(done)])

    def _acknowledge(self, ids: list[int]) -> None:
        if ids:
            with suppress(BlockingIOError):
                self.sock.send(b"".join(encode_ack(4, packet_id) for packet_id in ids))


class AmqpLink(Link):
    """A worker: its jobs take ``job_s`` each, one after the other, and it acknowledges up to the last one that is done
    every ``ack_every`` jobs. By channel, for each is a worker of its own."""

    def __init__(self, sock: socket.socket, jobs: dict[int, Job]) -> None:
        super().__init__(sock)
        self.jobs = jobs
        self._frames = AmqpFrames()

    def took(self, data: bytes) -> None:
        for channel, tag in self._frames.feed(data):
            self.jobs[channel].waiting.append(tag)

    def settle(self, now: float) -> None:
        for channel, job in self.jobs.items():
            while tag := job.done(now):
                with suppress(BlockingIOError):
                    self.sock.send(method(channel, 60, 80, struct.pack(">QB", tag, job.upto)))


class Job:
    """How one worker works. ``job_s`` inf: it never is done. ``hold_s``: it holds each record at least so long, and all
    it holds at the same time."""

    upto = True
    """The worker acknowledges all up to the last one."""

    def __init__(self, job_s: float = 0.0, hold_s: float = 0.0, ack_every: int = 1, ack_every_s: float = 0.0) -> None:
        self.job_s, self.hold_s, self.ack_every, self.ack_every_s = job_s, hold_s, ack_every, ack_every_s
        self.waiting: deque[int] = deque()
        self._began: float | None = None
        self._first: float | None = None
        self._finished = 0
        self._last_tag = 0
        self._told = 0.0

    def done(self, now: float) -> int:
        """Returns the tag to acknowledge up to; 0: none now."""
        if self.job_s == inf or not (self.waiting or self._finished):
            return 0
        if self.hold_s:
            return self._let_go(now)
        while self.waiting:
            if self._began is None:
                self._began = now
            if now - self._began < self.job_s:
                break
            self._last_tag, self._finished = self.waiting.popleft(), self._finished + 1
            self._began = self._began + self.job_s if self.job_s and self.waiting else None
        if self._finished >= self.ack_every or (self.ack_every_s and self._finished and
                                                now - self._told >= self.ack_every_s):
            self._finished, self._told = 0, now
            return self._last_tag
        return 0

    def _let_go(self, now: float) -> int:
        if self._first is None:
            self._first = now
        if now - self._first < self.hold_s:
            return 0
        self._first, tag = None, self.waiting[-1]
        self.waiting.clear()
        return tag


class ManyJobs(Job):
    """A worker that has all that it holds at work at the same time, each for ``job_s``. The first takes ``first_s``, so
    that it is acknowledged after others."""

    upto = False

    def __init__(self, job_s: float, first_s: float | None = None) -> None:
        super().__init__(job_s)
        self._first_s = job_s if first_s is None else first_s
        self._due: list[tuple[float, int]] = []

    def done(self, now: float) -> int:
        while self.waiting:
            heapq.heappush(self._due, (now + self._first_s, self.waiting.popleft()))
            self._first_s = self.job_s
        return heapq.heappop(self._due)[1] if self._due and self._due[0][0] <= now else 0
