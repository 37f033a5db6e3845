"""A publisher of the run: numbered and stamped records, at a rate, evenly or in bursts.

A record is stamped when it is handed to the socket, never before, so a broker that holds its publisher back shows in
the rate and in the seconds that it was held up, and not in the delays of records that nobody had sent yet.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from headway.trouble.client import Client
from headway.trouble.figures import Stamp, write_stamp

TICK_S = 0.005
MADE_UP_S = 0.5
"""A publisher that was held up makes up for this much at most."""
AT_ONCE = 256
"""Records that are written before the loop's other tasks get their turn."""


class Span:
    """A publisher's figures of one part of the run."""

    def __init__(self) -> None:
        self.seconds = self.blocked_s = 0.0
        self.sent = 0


class Publisher:
    def __init__(self, client: Client, topics: Sequence[str], first_topic: int = 0, burst_s: float = 0.0) -> None:
        """``burst_s``: it sends what is due in so many seconds at once; 0: evenly."""
        self.client = client
        self._topics, self._first_topic = topics, first_topic
        self._burst_s = burst_s
        self._owed = self._quiet_s = 0.0
        self._last_s: float | None = None
        self.sent = [0] * len(topics)
        """Records of each topic."""
        self.before, self.beside = Span(), Span()
        self.held_by: set[str] = set()
        """The broker's words for why it had to wait."""

    async def run(self) -> None:
        """Publishes until it is cancelled. Raises Gone."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._hear())
            while True:
                await asyncio.sleep(TICK_S)
                self._publish()

    async def _hear(self) -> None:
        """Goes on at once where a confirm makes room: the next tick may be late."""
        client = self.client
        while client.line is not None:
            await client.line.readable()
            client.took(client.line.take())
            self._publish()

    def _publish(self) -> None:
        """Sends what is due, as far as there is room for it."""
        rate, now = self.client.stage.plan.rate, time.monotonic()
        passed, self._last_s = now - (now if self._last_s is None else self._last_s), now
        span = self.before if self.client.stage.trouble_ns is None else self.beside
        span.seconds += passed
        self._quiet_s += passed
        self._owed = min(self._owed + rate * passed, rate * max(MADE_UP_S, 2 * self._burst_s))
        if self._quiet_s < self._burst_s:
            return
        records = min(int(self._owed), AT_ONCE)
        sent = self._send(records)
        span.sent += sent
        self._owed -= sent
        span.blocked_s += passed if sent < records else 0.0
        if self._owed < 1:
            self._quiet_s = 0.0

    def _send(self, records: int) -> int:
        """Returns how many there was room for."""
        client, dialogue = self.client, self.client.dialogue
        if client.line is None or client.line.full:
            return 0
        if dialogue.held:
            self.held_by.add(dialogue.held)
            return 0
        confirmed = bool(client.stage.plan.qos) and not self._burst_s
        records = min(records, dialogue.window - dialogue.unconfirmed) if confirmed else records
        for _ in range(records):
            topic = sum(self.sent) % len(self._topics)
            stamp = Stamp(client.stage.run, self._first_topic + topic, self.sent[topic], time.monotonic_ns())
            payload = write_stamp(stamp, client.stage.plan.size_bytes)
            dialogue.publish(self._topics[topic], payload, confirmed=confirmed)
            self.sent[topic] += 1
        client.flush()
        return max(0, records)

    async def settle(self, seconds: float) -> None:
        """Waits for confirms that are still due, so long at most."""
        deadline = time.monotonic() + seconds
        client = self.client
        while client.line is not None and client.dialogue.unconfirmed:
            if time.monotonic() > deadline:
                return
            client.took(client.line.take())
            await asyncio.sleep(TICK_S)
