"""Recovery: clients of a broker that was killed and started again take all that waits, and count it."""

from __future__ import annotations

import struct
import time
from multiprocessing.connection import Connection
from typing import Any

from bench.driver.worker import say
from bench.wires import durable_session
from bench.wires.durable import AmqpDurable
from bench.wires.durable_session import Deliveries
from bench.wires.wire import Frame, Levels

READ_BYTES = 256 * 1024
AT_ONCE = 20
QUIET_S = 5.0
"""The time without a record after which no more are expected."""


def leave(pipe: Connection, port: int, names: list[str], filters: list[Levels]) -> dict[str, Any]:
    """Makes sessions with one subscription each, the filters in turn, and disconnects their clients."""
    say(pipe, "ready")
    pipe.recv()
    for at, name in enumerate(names):
        sock = durable_session.connect(port, name)
        durable_session.subscribe(sock, filters[at % len(filters)])
        durable_session.leave(sock)
    return {"sessions": len(names)}


def churn(pipe: Connection, port: int, number: int) -> dict[str, Any]:
    """Makes so many durable sessions that subscribe, unsubscribe and end, some at a time."""
    say(pipe, "ready")
    pipe.recv()
    for start in range(0, number, AT_ONCE):
        some = range(start, min(number, start + AT_ONCE))
        for sock in [durable_session.come_and_go(port, f"churn-{at}", ("churn", f"{at}")) for at in some]:
            while sock.recv(READ_BYTES):
                pass
            sock.close()
    return {"sessions": number}


def sessions(pipe: Connection, port: int, names: list[str], wanted: int) -> dict[str, Any]:
    """Has each session take and acknowledge what waits for it. ``wanted``: numbers that each is to get."""
    say(pipe, "ready")
    pipe.recv()
    began = time.monotonic()
    records = deliveries = 0
    for name in names:
        sock, found = durable_session.connect(port, name), Deliveries()
        sock.settimeout(QUIET_S)
        try:
            while len(found.numbers) < wanted and (data := sock.recv(READ_BYTES)):
                if acks := found.take(data):
                    sock.sendall(acks)
        except TimeoutError:
            pass
        durable_session.leave(sock)
        records += len(found.numbers)
        deliveries += found.count
    return {"records": records, "deliveries": deliveries, "seconds": time.monotonic() - began}


def queue(
    pipe: Connection, wire: AmqpDurable, port: int, levels: Levels, frame: Frame, wanted: int
) -> dict[str, Any]:
    """Consumes the queue's messages, without acknowledgements."""
    sock = wire.open(port, "recovery")
    say(pipe, "ready")
    pipe.recv()
    began = time.monotonic()
    wire.subscribe(sock, levels)
    sock.settimeout(QUIET_S)
    each = struct.Struct(f">{frame.payload_at}xq{frame.size_bytes - frame.payload_at - 8}x")
    rest, deliveries = b"", 0
    numbers: set[int] = set()
    try:
        while len(numbers) < wanted and (data := sock.recv(READ_BYTES)):
            data = rest + data
            end = len(data) - len(data) % each.size
            rest = data[end:]
            found = [number for (number,) in each.iter_unpack(data[:end])]
            numbers.update(found)
            deliveries += len(found)
    except TimeoutError:
        pass
    sock.close()
    return {"records": len(numbers), "deliveries": deliveries, "seconds": time.monotonic() - began}
