"""Traces: at the end of each turn the loop hands ended traces to a thread, which makes spans of them and sends them.

The loop never waits for it. At most ``waiting_max`` traces wait for the thread. Traces beyond that, and those that the
collector does not take in time, are dropped and counted, and the log says so, at most once a minute. At the stop, open
traces end as they stand, and the thread has ``FLUSH_S`` seconds for what waits.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from headway.core.base import ConfigError
from headway.core.broker import Broker
from headway.core.receipts import ENDED_MAX, TraceSampling
from headway.server.config import Settings
from headway.server.traces.ended import Ended, ended

if TYPE_CHECKING:
    from headway.server.traces.exporter import Exporter

log = logging.getLogger("headway")

GATHER_S = 0.2
"""Time for which traces are gathered before they are sent."""
BATCH_MAX = 64
TAKE_MAX = 256
"""Traces that are handed over in one turn; the others wait for the next turn or tick."""
FLUSH_S = 5.0
"""Time for the last traces at the stop; ``AWAY_FLUSH_S`` where the collector did not take the last ones either."""
AWAY_FLUSH_S = 0.5
TOLD_EVERY_S = 60.0
DROPPED = ("queue_full", "not_taken", "stopped")


class Traces:
    def __init__(self, broker: Broker, sampling: TraceSampling, exporter: Exporter, url: str, waiting_max: int,
                 loop: asyncio.AbstractEventLoop, now: Callable[[], float]) -> None:
        self.sampling = sampling
        self.exported_spans = 0
        self.dropped: Counter[str] = Counter(dict.fromkeys(DROPPED, 0))
        """Traces that did not reach the collector, by why."""
        self.last_error = ""
        """Why the last export failed; empty: it did not."""
        self._receipts = broker.registry.receipts
        self._book = broker.verdicts
        self._registry = broker.registry
        self._exporter = exporter
        self._url = url.partition("?")[0]  # a query may have a key in it, and logs go far
        self._waiting_max = waiting_max
        self._loop = loop
        self._now = now
        self._queue: deque[Ended] = deque()
        self._some = threading.Event()
        self._stop = threading.Event()
        self._told: tuple[str, float] = ("", 0.0)
        self._untold = 0
        self._sending = 0
        """Traces of the export that is under way."""
        self._given_up = False
        # The process does not wait for it at its end: a collector may hang for ever.
        self._thread = threading.Thread(target=self._export_all, name="headway-traces", daemon=True)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def start(self, settings: Settings) -> None:
        self._thread.start()

    def take(self, most: int = TAKE_MAX) -> None:
        """Hands over traces that have ended, in this turn or before."""
        traced = self._receipts.traced
        if not traced:
            return
        if lost := self._receipts.take_lost():
            self._drop(lost, "queue_full", "more traces ended at once than are handed over")
        offset_s = self._registry.wall_offset_s
        for _ in range(min(most, len(traced))):
            trace = traced.popleft()
            if len(self._queue) >= self._waiting_max:
                self._drop(1, "queue_full", self.last_error or "it does not keep up")
            else:
                self._queue.append(ended(trace, self._book, offset_s))
        self._some.set()

    def stop(self) -> None:
        """Ends open traces as they stand, and has the thread end once it has sent what waits."""
        self._receipts.end_traces(self._now())
        self.take(ENDED_MAX)
        self._stop.set()
        self._some.set()

    async def ended(self) -> None:
        """Waits for the thread after ``stop``, for a while."""
        if not self._thread.is_alive():
            return
        patience_s = AWAY_FLUSH_S if self.last_error else FLUSH_S
        await self._loop.run_in_executor(None, self._thread.join, patience_s)
        left = len(self._queue)
        if self._thread.is_alive():
            self._given_up = True
            self._exporter.give_up()
            left += self._sending
        self._queue.clear()
        if left:
            self._drop(left, "stopped", "the broker stops")

    def _drop(self, traces: int, why: str, text: str) -> None:
        """Counts lost traces, and logs why, the same text at most once a minute."""
        self.dropped[why] += traces
        self._untold += traces
        now = self._now()
        if self._told[0] != text or now - self._told[1] >= TOLD_EVERY_S:
            self._told = (text, now)
            log.error("traces: %d could not be sent to %s: %s", self._untold, self._url, text)
            self._untold = 0

    # -- the thread -------------------------------------------------------------------------------------------------

    def _export_all(self) -> None:
        while True:
            self._some.wait()
            self._stop.wait(GATHER_S)
            self._some.clear()
            while some := self._batch():
                self._sending = len(some)
                sent, text = self._exporter.export(some)
                self._sending = 0
                try:
                    self._loop.call_soon_threadsafe(self._exported, len(some), sent, text)
                except RuntimeError:
                    return  # the loop has ended without us
                if text and self._stop.is_set():
                    break
            if self._stop.is_set():
                self._exporter.close()
                return

    def _batch(self) -> list[Ended]:
        some: list[Ended] = []
        while len(some) < BATCH_MAX:
            try:
                some.append(self._queue.popleft())
            except IndexError:
                break
        return some

    def _exported(self, traces: int, spans: int, text: str) -> None:
        if self._given_up:
            return  # these are counted
        self.exported_spans += spans
        self.last_error = text
        if text:
            self._drop(traces, "not_taken", text)
        elif self._told[0]:
            log.info("traces: %s takes them again", self._url)
            self._told = ("", 0.0)


def open_traces(
    settings: Settings, broker: Broker, loop: asyncio.AbstractEventLoop, life: str, now: Callable[[], float]
) -> Traces | None:
    """Returns None where the config has no traces. Raises ConfigError without the packages of OpenTelemetry."""
    table = settings.traces
    if broker.traces is None:
        return None
    try:
        from headway.server.traces.exporter import Exporter
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("opentelemetry", "requests"):
            raise
        text = "traces need OpenTelemetry's packages: pip install 'headway[otel]' (or traces.enabled = false)"
        raise ConfigError(text) from None
    exporter = Exporter(table, table.service or settings.server.name, life)
    return Traces(broker, broker.traces, exporter, table.url, table.waiting_max, loop, now)
