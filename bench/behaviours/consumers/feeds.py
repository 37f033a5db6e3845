"""Feeds: what the publisher of the set sends, and how fast. One connection publishes all of it."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

from bench.wires.packets import encode_publish

TICK_S = 0.05
MADE_UP_S = 0.5
"""A publisher that was held up makes up for this much at most."""


class Feed:
    """Records on one topic. ``rate``: payload bytes a second, which a kind may change at any time."""

    def __init__(self, topic: str, rate: float, size_bytes: int, qos: int) -> None:
        self.topic, self.rate, self.size_bytes, self.qos = topic, rate, size_bytes, qos
        self._record = encode_publish(topic, bytes(size_bytes), version=4)
        self._due_bytes = 0.0
        self._at_once = 0

    def burst(self, records: int) -> None:
        """Sends so many records at once."""
        self._at_once += records

    def due(self, seconds: float) -> int:
        """Returns how many records are due after so many seconds."""
        self._due_bytes += self.rate * seconds
        records = int(self._due_bytes / self.size_bytes)
        self._due_bytes -= records * self.size_bytes
        records, self._at_once = records + self._at_once, 0
        return records

    def encoded(self, records: int, first_id: int) -> bytes:
        if not self.qos:
            return self._record * records
        payload = bytes(self.size_bytes)
        return b"".join(
            encode_publish(self.topic, payload, version=4, qos=1, packet_id=(first_id + at) % 65_535 + 1)
            for at in range(records)
        )


class Publisher:
    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._feeds: list[Feed] = []
        self._next_id = 0
        self.sent_bytes = 0

    def feed(self, topic: str, rate: float, size_bytes: int, qos: int = 0) -> Feed:
        feed = Feed(topic, rate, size_bytes, qos)
        self._feeds.append(feed)
        return feed

    async def run(self) -> None:
        """Publishes until it is cancelled."""
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            now = loop.time()
            passed, last = now - last, now
            for feed in self._feeds:
                records = feed.due(min(passed, MADE_UP_S))
                if records:
                    data = feed.encoded(records, self._next_id)
                    self._next_id += records if feed.qos else 0
                    self.sent_bytes += len(data)
                    await loop.sock_sendall(self._sock, data)
            with suppress(BlockingIOError):
                while self._sock.recv(65_536):
                    pass
            await asyncio.sleep(TICK_S)
