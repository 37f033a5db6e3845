"""Publishers that send one message each in turn, and the next once every subscriber has all of them; in one process.

With one publisher and one subscriber each message travels by itself, and how long a round takes is its latency.
"""

from __future__ import annotations

import socket
import time
from multiprocessing.connection import Connection
from typing import Any

from bench.driver.message import Template
from bench.driver.publisher import opened as publisher_opened
from bench.driver.subscribers import BUFFER_BYTES, opened, percentiles
from bench.driver.worker import cpu_s, say
from bench.errors import PeerFailed
from bench.wires.wire import ANSWER_S, Frame, Levels, Wire


def rounds(
    pipe: Connection, wire: Wire, port: int, topic: Levels, publishers: int, subscribers: int, payload_bytes: int,
    frame: Frame, seconds: float,
) -> dict[str, Any]:  # fmt: skip
    """Runs rounds for so long; returns the messages that were published, and percentiles of the rounds' times."""
    readers = list(opened(wire, port, [topic], subscribers).values())
    for sock in readers:
        sock.settimeout(ANSWER_S)
    senders = [(sock, Template(wire, sock, topic, payload_bytes)) for sock in _senders(wire, port, publishers)]
    batches = [(sock, template, template.batch(1)) for sock, template in senders]
    taken = [-frame.first_bytes] * subscribers
    buffer, noise = bytearray(BUFFER_BYTES), wire.noise
    clock = time.monotonic_ns
    say(pipe, "ready")
    pipe.recv()
    took_ns: list[int] = []
    began, cpu = clock(), cpu_s()
    now, end, wanted = began, began + int(seconds * 1e9), 0
    while now < end:
        sent_at = now
        for sock, template, batch in batches:
            template.number(batch)
            sock.sendall(batch)
        wanted += publishers * frame.size_bytes
        for index, sock in enumerate(readers):
            while taken[index] < wanted:
                got = sock.recv_into(buffer)
                if not got:
                    raise PeerFailed("closed a subscriber's connection")
                taken[index] += got - (buffer.count(noise, 0, got) * len(noise) if noise else 0)
        now = clock()
        took_ns.append(now - sent_at)
    return {
        "published": len(took_ns) * publishers, "rounds": len(took_ns), "seconds": (now - began) / 1e9,
        "cpu_s": cpu_s() - cpu, **percentiles(sorted(took_ns)),
    }  # fmt: skip


def _senders(wire: Wire, port: int, number: int) -> list[socket.socket]:
    return [publisher_opened(wire, port, f"publisher-{index}") for index in range(number)]
