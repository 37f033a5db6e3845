"""A feed of JSON to subscribers in a browser, which take compressed messages, or do not."""

from __future__ import annotations

import json
import select
import socket
import time
from multiprocessing.connection import Connection
from typing import Any

from bench.driver.worker import cpu_s, say
from bench.wires.web import MqttWeb, NatsWeb
from bench.wires.websocket import Frames
from bench.wires.wire import Levels

MARK = b'"flight"'
READ_BYTES = 256 * 1024
QUIET_S = 1.0
STATES = ("boarding", "taxiing", "climbing", "cruising", "descending", "landed")


def record(number: int) -> bytes:
    """Returns an update as feeds have them: names repeat, numbers do not."""
    return json.dumps({
        "flight": f"HW{number % 900:04}", "sequence": number, "state": STATES[number % len(STATES)],
        "position": {"latitude": 40.6 + number % 7919 / 3571, "longitude": -73.8 - number % 6101 / 2903},
        "altitude_feet": number * 37 % 41_000, "speed_knots": number * 11 % 560, "delayed_minutes": number * 3 % 95,
        "origin": "JFK", "destination": "LAX", "carrier": "Headway Airlines", "remarks": "",
    }).encode()  # fmt: skip


def feed(
    pipe: Connection, wire: MqttWeb | NatsWeb, port: int, topic: Levels, seconds: float, rate_per_s: int
) -> dict[str, Any]:
    """Publishes so many records a second, a hundredth of them at a time."""
    sock = wire.open(port, "publisher")
    wire.will_publish(sock)
    step = max(1, rate_per_s // 100)
    batches = [
        b"".join(wire.publication(sock, topic, record(number), number + 1) for number in range(first, first + step))
        for first in range(0, int(rate_per_s * seconds), step)
    ]
    say(pipe, "ready")
    pipe.recv()
    began = time.monotonic()
    for number, batch in enumerate(batches):
        time.sleep(max(0.0, began + number * step / rate_per_s - time.monotonic()))
        sock.sendall(batch)
    say(pipe, {"published": len(batches) * step, "seconds": time.monotonic() - began})
    pipe.recv()
    sock.close()
    return {}


def count(pipe: Connection, wire: MqttWeb | NatsWeb, port: int, topic: Levels, number: int) -> dict[str, Any]:
    """Runs ``number`` subscribers, and counts bytes as they are on the wire. What the first one gets is read: so many
    records come to each. Ends when told to, and nothing more comes."""
    socks: dict[int, socket.socket] = {}
    for index in range(number):
        sock = wire.open(port, f"page-{index}")
        wire.subscribe(sock, topic)
        sock.setblocking(False)
        socks[sock.fileno()] = sock
    first, frames, records, rest = next(iter(socks)), Frames(wire.answer), 0, b""
    taken = dict.fromkeys(socks, 0)
    poll = select.epoll()
    for fd in (*socks, pipe.fileno()):
        poll.register(fd, select.EPOLLIN)
    say(pipe, "ready")
    over, began_cpu = False, cpu_s()
    while (events := poll.poll(QUIET_S)) or not over:
        for fd, _ in events:
            if fd == pipe.fileno():
                over = pipe.recv() == "stop"
                continue
            data = socks[fd].recv(READ_BYTES)
            taken[fd] += len(data)
            if not data:
                poll.unregister(fd)
            elif fd == first:
                frames.feed(data)
                rest += frames.take()
                records += rest.count(MARK)
                rest = rest[-len(MARK) + 1 :]
    return {"records": records, "wire_bytes": sum(taken.values()), "compressed": frames.compressed,
            "cpu_s": cpu_s() - began_cpu}  # fmt: skip
