"""Catch-up: a subscriber reads nothing for a while, and then until it is current."""

from __future__ import annotations

import re
import time
from multiprocessing.connection import Connection
from typing import Any

from bench.driver.message import MARK, STAMP, keyed_payload
from bench.driver.worker import say
from bench.wires.wire import Levels, Wire

READ_BYTES = 256 * 1024
QUIET_S = 5.0
UPDATE = re.compile(re.escape(MARK) + b"(.{%d})" % STAMP.size, re.DOTALL)


def catch_up(
    pipe: Connection, wire: Wire, port: int, filter: Levels, conflate: str | None, updates: int, keys: int
) -> dict[str, Any]:
    """Reads until it is current. Update n is for key n modulo ``keys``; ``updates`` is the number of the last of all.

    ``current``: whether that one came. ``keys_current``: of how many keys the last value there is has come last.
    """
    sock = wire.open(port, "catch-up")
    wire.subscribe(sock, filter, conflate)
    say(pipe, "ready")
    pipe.recv()
    pipe.recv()
    began = last = time.monotonic()
    sock.settimeout(QUIET_S)
    final = keyed_payload(updates, len(MARK) + STAMP.size)
    every_bytes = 0
    parts: list[bytes] = []
    tail, current, disconnected = b"", False, False
    acknowledgement = wire.acknowledgement(sock, filter) if wire.ack_every else b""
    due, seen = wire.ack_every, 0
    try:
        while not current:
            part = sock.recv(READ_BYTES)
            last = time.monotonic()
            disconnected = not part
            if disconnected:
                break
            parts.append(part)
            tail = tail[-len(final) :] + part
            current = final in tail
            every_bytes += len(part)
            if acknowledgement:
                seen += part.count(MARK)
                while seen >= due:
                    sock.sendall(acknowledgement)
                    due += wire.ack_every
    except TimeoutError:
        pass
    except ConnectionError:
        disconnected = True
    numbers = [STAMP.unpack(found)[0] for found in UPDATE.findall(b"".join(parts))]
    newest = {number % keys: number for number in numbers if number < updates}
    return {
        "current": current, "catchup_s": last - began, "catchup_bytes": every_bytes, "disconnected": int(disconnected),
        "deliveries": len(numbers), "keys_current": sum(updates - number <= keys for number in newest.values()),
    }  # fmt: skip
