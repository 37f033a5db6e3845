"""Freshness: how old records are when a subscriber that reads slowly gets them."""

from __future__ import annotations

import re
import time
from math import inf
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from bench.driver.message import MARK, STAMP, keyed_payload
from bench.driver.publisher import opened
from bench.driver.subscribers import percentiles
from bench.driver.worker import say
from bench.link import enter
from bench.wires.wire import Levels, Wire

UPDATE = re.compile(re.escape(MARK) + b"(.{%d})" % STAMP.size, re.DOTALL)
LOOK_S = 0.025
SAVED_S = 0.25
"""A reader that finds nothing saves up the pace of this long at most."""
FEED_S = 0.002
READ_BYTES = 64 * 1024
READS_MAX_S = 0.5
"""A reader of everything that is there stops after so long: at a feed that is faster than itself."""


def feed(
    pipe: Connection, wire: Wire, port: int, topics: list[Levels], payload_bytes: int, rate_per_s: int, seconds: float
) -> dict[str, Any]:
    """Publishes updates over the topics in turn, each with the time at which it is sent (CLOCK_MONOTONIC, ns)."""
    sock = opened(wire, port)
    say(pipe, "ready")
    pipe.recv()
    began, number = time.monotonic(), 0
    while (passed := time.monotonic() - began) < seconds:
        due = int(passed * rate_per_s)
        if due > number:
            payload = keyed_payload(time.monotonic_ns(), payload_bytes)
            sock.sendall(b"".join(wire.publication(sock, topics[n % len(topics)], payload, n + 1)
                                  for n in range(number, due)))  # fmt: skip
            number = due
        time.sleep(FEED_S)
    sock.close()
    return {"published": number}


class Manner(NamedTuple):
    """How a subscriber reads: so many bytes a second, for ``reads_s`` and then not for ``pauses_s``; or everything that
    is there, once in ``every_s``."""

    rate: float = inf
    reads_s: float = inf
    pauses_s: float = 0.0
    every_s: float = 0.0


class Allowance:
    """How much a subscriber may read now."""

    def __init__(self, manner: Manner, now: float) -> None:
        self._manner = manner
        self._last = self._turn = now
        self._pauses_until = now
        self.left = 0.0

    def look(self, now: float) -> None:
        manner = self._manner
        passed, self._last = now - self._last, now
        if manner.every_s:
            self.left = inf if now >= self._turn else 0.0
            self._turn += manner.every_s * (now >= self._turn)
            return
        self.left = min(self.left + manner.rate * passed, manner.rate * SAVED_S)
        if now - self._turn > manner.reads_s:
            self._pauses_until = self._turn = now + manner.pauses_s
        if now < self._pauses_until:
            self.left = 0.0


def read(
    pipe: Connection, wire: Wire, port: int, filter: Levels, conflate: str | None, manner: Manner, settles_s: float,
    seconds: float, far: str,
) -> dict[str, Any]:  # fmt: skip
    """Reads in this manner, in the namespace ``far`` if that is named. What arrives in the first ``settles_s`` is not
    counted."""
    if far:
        enter(far)
    sock = wire.open(port, "fresh")
    wire.subscribe(sock, filter, conflate)
    sock.setblocking(False)
    say(pipe, "ready")
    pipe.recv()
    clock = time.monotonic
    began = clock()
    allowance = Allowance(manner, began)
    ages: list[int] = []
    size, tail, disconnected = 0, b"", False
    while not disconnected and (now := clock()) < began + settles_s + seconds:
        allowance.look(now)
        parts = [tail]
        try:
            while allowance.left >= 1 and not disconnected and clock() < now + READS_MAX_S:
                part = sock.recv(int(min(allowance.left, READ_BYTES)))
                parts.append(part)
                allowance.left -= len(part)
                disconnected = not part
        except BlockingIOError:
            pass
        except ConnectionError:
            disconnected = True
        data, at = b"".join(parts), 0
        counted, read_ns = now >= began + settles_s, time.monotonic_ns()
        if counted:
            size += len(data) - len(tail)
        for found in UPDATE.finditer(data):
            at = found.end()
            if counted:
                ages.append(read_ns - STAMP.unpack(found[1])[0])
        tail = data[max(at, len(data) - len(MARK) - STAMP.size) :]
        time.sleep(LOOK_S)
    sock.close()
    figures: dict[str, Any] = {**percentiles(sorted(ages))}
    return figures | {"deliveries": len(ages), "bytes_per_s": size / seconds, "disconnected": int(disconnected)}
