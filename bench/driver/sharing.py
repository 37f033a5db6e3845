"""Subscribers of a state who all ask for the same, and what they are told."""

from __future__ import annotations

import socket
import time
from multiprocessing.connection import Connection
from selectors import EVENT_READ, DefaultSelector
from typing import Any

from bench.driver.worker import say
from bench.errors import PeerFailed
from bench.wires.mqtt import Mqtt
from bench.wires.packets import encode_subscribe
from bench.wires.wire import take

TOLD, LAST = b'"mark":"told', b'"mark":"last'
READ_BYTES = 256 * 1024
LOOK_S = 0.05
END_S = 60.0


def share(
    pipe: Connection, port: int, filter: str, count: int, user: tuple[tuple[str, str], ...]
) -> dict[str, Any]:
    """Subscribes so many clients with these options, and counts the records with ``TOLD`` that they get, until each has
    the one with ``LAST``. It reads from the start, so it is ready when all are subscribed."""
    deliveries = ended = 0
    with DefaultSelector() as ready:
        tails: dict[socket.socket, bytes] = {}
        for number in range(count):
            sock = Mqtt(5).open(port, f"shares-{number}")
            sock.sendall(encode_subscribe(1, [filter], user=user))
            head = take(sock, 2)
            if head[0] != 0x90 or (answer := take(sock, head[1]))[-1] > 2:
                raise PeerFailed(f"SUBACK says {answer[-1]:#04x}")
            ready.register(sock, EVENT_READ)
            tails[sock] = b""
        say(pipe, "ready")
        deadline = None
        while ended < count or deadline is None:
            if deadline is None and pipe.poll():
                pipe.recv()
                deadline = time.monotonic() + END_S
            if deadline is not None and time.monotonic() > deadline:
                break
            for key, _ in ready.select(LOOK_S):
                sock = key.fileobj  # type: ignore[assignment]
                part = sock.recv(READ_BYTES)
                if not part:
                    raise PeerFailed("a subscriber was disconnected")
                text = tails[sock] + part
                deliveries += text.count(TOLD)
                ended += text.count(LAST)
                tails[sock] = text[-(len(TOLD) - 1) :]
    return {"deliveries": deliveries, "ended": ended}
