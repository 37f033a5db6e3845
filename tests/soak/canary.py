"""A canary: a thousand messages a second from one client to another, past whatever troubles the broker, and how long
each took. In a process of its own, so that only the broker can make it wait.

A message's time is when it was due, not when it could be written: who is kept waiting is not to look quick.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from contextlib import suppress
from typing import NamedTuple

from bench.wires.packets import connect, encode_publish, encode_subscribe

RATE = 1000
BODY = bytes(92)
TIME = 8
LAST_S = 10.0
"""For what is still on its way at the end."""


class Song(NamedTuple):
    """What the canary saw. Times in milliseconds."""

    sent: int
    received: int
    p50_ms: float
    p99_ms: float
    longest_ms: float


class Canary:
    """Sings from its making until ``stop``."""

    def __init__(self, port: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.canary", str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"singing\n"

    def stop(self) -> Song:
        told, _ = self._process.communicate(timeout=LAST_S + 20)
        return Song(**json.loads(told))


def _client(port: int, name: str) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(connect(name, 4))
    assert sock.recv(4) == b"\x20\x02\0\0"
    return sock


def _frame(due_s: float) -> bytes:
    return encode_publish("canary", int(due_s * 1e9).to_bytes(TIME, "big") + BODY, version=4)


def sing(port: int) -> Song:
    reader, writer = _client(port, "canary reads"), _client(port, "canary sings")
    reader.sendall(encode_subscribe(1, ["canary"], version=4))
    assert reader.recv(5) == b"\x90\x03\0\x01\0"
    for sock in (reader, writer):
        sock.setblocking(False)
    print("singing", flush=True)
    size = len(_frame(0.0))
    began, sent, out, came, took = time.monotonic(), 0, bytearray(), bytearray(), []
    end = float("inf")
    while True:
        now = time.monotonic()
        while now < end and began + sent / RATE <= now:
            out += _frame(began + sent / RATE)
            sent += 1
        if out:
            with suppress(BlockingIOError):
                del out[: writer.send(out)]
        if now >= end and (len(took) == sent or now > end + LAST_S):
            break
        ready, _, _ = select.select([reader, *([0] if end == float("inf") else [])], [], [], 0.001)
        if reader in ready:
            came += reader.recv(1 << 18)
            now = time.monotonic()
            whole = len(came) // size * size
            for at in range(size - TIME - len(BODY), whole, size):
                took.append(now - int.from_bytes(came[at : at + TIME], "big") / 1e9)
            del came[:whole]
        if 0 in ready and not os.read(0, 1):
            end = now
    took = sorted(took) or [LAST_S]
    longest = max(took[-1], LAST_S if len(took) < sent else 0.0)
    return Song(sent, len(took), *(round(1000 * s, 1) for s in (took[len(took) // 2], took[len(took) * 99 // 100],
                                                                  longest)))  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(sing(int(sys.argv[1]))._asdict()), flush=True)
