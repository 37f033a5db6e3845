"""A client that pings at a steady pace, to measure how long the broker's loop does not answer."""

from __future__ import annotations

import select
import time
from collections import deque
from multiprocessing.connection import Connection
from typing import Any

from bench.driver.subscribers import percentiles
from bench.driver.worker import say
from bench.wires.mqtt import Mqtt
from bench.wires.packets import encode_pingreq

ANSWER_BYTES, LOOK_S = 2, 0.1
LAST_S = 20.0
"""The time for which the last answers are waited for."""


def ping(pipe: Connection, wire: Mqtt, port: int, seconds: float, every_s: float) -> dict[str, Any]:
    """Measures percentiles of the round trips, ns, from when a ping was sent. ``sent_late_ns``: by how much the driver
    was late itself at most, which shows what of a long round trip may be the machine's doing."""
    sock = wire.open(port, "ping")
    sock.setblocking(False)
    say(pipe, "ready")
    pipe.recv()
    clock, request = time.monotonic_ns, encode_pingreq()
    every_ns, began = int(every_s * 1e9), clock()
    end = began + int(seconds * 1e9)
    due, sent_late = began, 0
    waiting: deque[int] = deque()
    trips: list[int] = []
    half = 0
    while (now := clock()) < end or (waiting and now < end + LAST_S * 1e9):
        if now >= due and now < end:
            sock.send(request)
            waiting.append(now)
            sent_late = max(sent_late, now - due)
            due += every_ns
            if due < now:
                due = now + every_ns
        if select.select([sock], [], [], max(0.0, (due - clock()) / 1e9) if now < end else LOOK_S)[0]:
            half += len(sock.recv(65_536))
            now = clock()
            while half >= ANSWER_BYTES:
                trips.append(now - waiting.popleft())
                half -= ANSWER_BYTES
    sock.close()
    return {"pings": len(trips), "unanswered": len(waiting), "sent_late_ns": sent_late, **percentiles(sorted(trips))}
