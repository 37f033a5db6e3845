"""The publisher: as fast as the broker reads, or at a pace with a time stamp in each message."""

from __future__ import annotations

import socket
import time
from multiprocessing.connection import Connection
from typing import Any

from bench.driver.message import Template, keyed_payload
from bench.driver.worker import cpu_s, say
from bench.wires.wire import Levels, Wire

BATCH_BYTES = 128 * 1024
FINISH_S = 2.0
"""The time for which it tries to finish a message of which a part is sent already."""
STALLED_S = 3.0
LAST_S = 60.0
WAIT_S = 0.1


def flood(
    pipe: Connection, wire: Wire, port: int, topic: Levels, payload_bytes: int, seconds: float
) -> dict[str, Any]:
    """Publishes as fast as the broker takes it, for so long. ``published`` counts whole messages handed to the
    kernel."""
    sock = opened(wire, port)
    template = Template(wire, sock, topic, payload_bytes)
    batch = template.batch(BATCH_BYTES)
    say(pipe, "ready")
    pipe.recv()
    began, cpu = time.monotonic(), cpu_s()
    end = began + seconds
    sent = 0
    while True:  # once at least: a crowded machine may not have run this process before the time was over
        template.number(batch)
        sent += _send(sock, memoryview(batch), end)
        if time.monotonic() >= end:
            break
    seconds = time.monotonic() - began
    cpu = cpu_s() - cpu
    if rest := -sent % template.size_bytes:
        begun = sent % len(batch)
        sent += _send(sock, memoryview(batch)[begun : begun + rest], time.monotonic() + FINISH_S)
    say(pipe, {"published": sent // template.size_bytes, "seconds": seconds, "cpu_s": cpu})
    pipe.recv()
    sock.close()
    return {}


def paced(
    pipe: Connection, wire: Wire, port: int, topic: Levels, payload_bytes: int, seconds: float, rate_per_s: int
) -> dict[str, Any]:
    """Publishes ``rate_per_s`` a second. Each message carries the time it was due (CLOCK_MONOTONIC, ns), so what it
    waits because the publisher is held up counts as well."""
    sock = opened(wire, port)
    template = Template(wire, sock, topic, payload_bytes)
    sock.settimeout(seconds + STALLED_S)
    say(pipe, "ready")
    pipe.recv()
    interval_ns, count = 1_000_000_000 // rate_per_s, int(rate_per_s * seconds)
    began, cpu = time.monotonic_ns(), cpu_s()
    number = 0
    while number < count:
        now = time.monotonic_ns()
        due = min(count, (now - began) // interval_ns + 1)
        if due > number:
            stamps = range(began + number * interval_ns, began + due * interval_ns, interval_ns)
            sock.sendall(template.stamped(stamps))
            number = due
        wait_ns = began + number * interval_ns - time.monotonic_ns()
        if wait_ns > 0:
            time.sleep(wait_ns / 1e9)
    say(pipe, {"published": count, "seconds": (time.monotonic_ns() - began) / 1e9, "cpu_s": cpu_s() - cpu})
    pipe.recv()
    sock.close()
    return {}


def keyed(
    pipe: Connection, wire: Wire, port: int, topics: list[Levels], payload_bytes: int, updates: int, last: Levels
) -> dict[str, Any]:
    """Publishes ``updates`` in turn over the topics, then, when told to, one on ``last``, each with ``keyed_payload``.

    Should the broker take nothing for some seconds, ``held_up`` tells how much it had taken, and publishing goes on.
    """
    sock = opened(wire, port)
    say(pipe, "ready")
    pipe.recv()
    began, cpu = time.monotonic(), cpu_s()
    at_once = max(1, BATCH_BYTES // Template(wire, sock, topics[0], payload_bytes).size_bytes)
    held_up = False
    for first in range(0, updates, at_once):
        numbers = range(first, min(updates, first + at_once))
        updates_of_batch = [(topics[n % len(topics)], keyed_payload(n, payload_bytes), n + 1) for n in numbers]
        batch = memoryview(b"".join([wire.publication(sock, *update) for update in updates_of_batch]))
        while batch:
            batch = batch[_send(sock, batch, time.monotonic() + STALLED_S) :]
            if batch and not held_up:
                held_up = True
                say(pipe, {"held_up": first, "seconds": time.monotonic() - began})
    if not held_up:
        say(pipe, {"published": updates, "seconds": time.monotonic() - began})
    pipe.recv()
    final = memoryview(wire.publication(sock, last, keyed_payload(updates, payload_bytes), updates + 1))
    _send(sock, final, time.monotonic() + LAST_S)
    say(pipe, {"cpu_s": cpu_s() - cpu})
    pipe.recv()
    sock.close()
    return {}


def opened(wire: Wire, port: int, name: str = "publisher") -> socket.socket:
    sock = wire.open(port, name)
    wire.will_publish(sock)
    return sock


def _send(sock: socket.socket, data: memoryview, until: float) -> int:
    """Sends as a blocking ``sendall`` does, up to a point in time; returns how much went."""
    done = 0
    sock.settimeout(WAIT_S)
    while done < len(data):
        try:
            done += sock.send(data[done:])
        except TimeoutError:
            if time.monotonic() > until:
                break
    return done

