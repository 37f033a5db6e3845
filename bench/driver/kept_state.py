"""The state of a keyed topic: filled over MQTT, updated at a rate, and asked for over HTTP."""

from __future__ import annotations

import http.client
import json
import time
from multiprocessing.connection import Connection
from typing import Any

from bench.driver.publisher import opened
from bench.driver.worker import say
from bench.wires.wire import HOST, Levels, Wire

BATCH = 500
PACE_S = 0.005
ANSWER_S = 300.0
VALUES = 1_000_003
"""A prime: values of the records look random, and most keys have one of their own."""


def payload_of(number: int, key: int, payload_bytes: int) -> bytes:
    """Returns the payload of update ``number``, which has its key and a value."""
    start = b'{"k":"k%07d","v":%d,"f":"' % (key, number * 7919 % VALUES)
    return start + b"." * (payload_bytes - len(start) - 2) + b'"}'


def fill(
    pipe: Connection, wire: Wire, port: int, topic: Levels, keys: int, payload_bytes: int, rate_per_s: int
) -> dict[str, Any]:
    """Publishes a record per key as fast as it goes. When told to, it goes on at a rate until it is ended."""
    sock = opened(wire, port)
    say(pipe, "ready")
    pipe.recv()
    for first in range(0, keys, BATCH):
        numbers = range(first, min(keys, first + BATCH))
        sock.sendall(b"".join(wire.publication(sock, topic, payload_of(n, n, payload_bytes), n + 1) for n in numbers))
    say(pipe, "filled")
    pipe.recv()
    began, number = time.monotonic(), 0
    while not pipe.poll(PACE_S):
        due = int((time.monotonic() - began) * rate_per_s)
        some = [(n + keys, n * 6_700_417 % keys) for n in range(number, due)]
        sock.sendall(b"".join(wire.publication(sock, topic, payload_of(n, key, payload_bytes), n) for n, key in some))
        number = due
    return {"updates": number}


class Asker:
    """A client of the state, on one connection."""

    def __init__(self, port: int, path: str) -> None:
        self._connection = http.client.HTTPConnection(HOST, port, timeout=ANSWER_S)
        self._path = path

    def ask(self) -> tuple[int, dict[str, Any]]:
        """Returns how long the answer took, in nanoseconds, and the answer."""
        began = time.perf_counter_ns()
        self._connection.request("GET", self._path)
        with self._connection.getresponse() as answer:
            body = answer.read()
        return time.perf_counter_ns() - began, json.loads(body)

    def close(self) -> None:
        self._connection.close()
