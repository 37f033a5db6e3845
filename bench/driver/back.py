"""Who comes back after the broker was killed: takes all that waits, and says which numbers there were."""

from __future__ import annotations

import struct
import time
from multiprocessing.connection import Connection
from typing import Any

from bench.driver.worker import say
from bench.wires.durable import AmqpDurable
from bench.wires.stay import Deliveries, Stay
from bench.wires.wire import Frame, Levels

READ_BYTES = 256 * 1024
AT_ONCE = 20
QUIET_S = 5.0
"""Nothing for so long: nothing more comes."""


def leave(pipe: Connection, port: int, names: list[str], filters: list[Levels]) -> dict[str, Any]:
    """Sessions with one subscription each, the filters in turn; all of them gone when it is done."""
    stay = Stay()
    say(pipe, "ready")
    pipe.recv()
    for at, name in enumerate(names):
        sock = stay.come(port, name)
        stay.subscribe(sock, filters[at % len(filters)])
        stay.leave(sock)
    return {"sessions": len(names)}


def churn(pipe: Connection, port: int, number: int) -> dict[str, Any]:
    """So many durable sessions come, subscribe, unsubscribe and end, some at a time."""
    stay = Stay()
    say(pipe, "ready")
    pipe.recv()
    for start in range(0, number, AT_ONCE):
        some = range(start, min(number, start + AT_ONCE))
        for sock in [stay.pass_by(port, f"churn-{at}", ("churn", f"{at}")) for at in some]:
            while sock.recv(READ_BYTES):
                pass
            sock.close()
    return {"sessions": number}


def sessions(pipe: Connection, port: int, names: list[str], wanted: int) -> dict[str, Any]:
    """Each of the sessions takes what waits for it, acknowledging. ``wanted``: numbers that each is to get."""
    stay = Stay()
    say(pipe, "ready")
    pipe.recv()
    began = time.monotonic()
    records = deliveries = 0
    for name in names:
        sock, found = stay.come(port, name), Deliveries()
        sock.settimeout(QUIET_S)
        try:
            while len(found.numbers) < wanted and (data := sock.recv(READ_BYTES)):
                if acks := found.take(data):
                    sock.sendall(acks)
        except TimeoutError:
            pass
        stay.leave(sock)
        records += len(found.numbers)
        deliveries += found.count
    return {"records": records, "deliveries": deliveries, "seconds": time.monotonic() - began}


def queue(
    pipe: Connection, wire: AmqpDurable, port: int, levels: Levels, frame: Frame, wanted: int
) -> dict[str, Any]:
    """The queue's messages, without acknowledgements."""
    sock = wire.open(port, "back")
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
