"""Telemetry: a thread writes the observer's rows to the lake. The loop never waits for it.

Once a second there is a row of the broker. Every ``every``, or when many rows have gathered, the recorder's rows go to
the thread. At most ``WAITING_MAX`` batches wait for it. Rows beyond that, and rows that cannot be written, are dropped
and counted. The broker goes on, and the next rows are tried again.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Callable
from enum import StrEnum
from queue import SimpleQueue
from typing import TYPE_CHECKING

from headway import __version__
from headway.core.base import ConfigError
from headway.core.broker import Broker
from headway.core.telemetry import LakeObserver, Recorder, RowBatch
from headway.server.config import Settings, TelemetryTable
from headway.server.journal import JournalWriter
from headway.server.loop import Repeating, memory_rss_bytes

if TYPE_CHECKING:
    from headway.store.lake import Lake


# -- telemetry ---------------------------------------------------------------------------------------------------------


log = logging.getLogger("headway")

SECOND_S = 1.0
TAKE_ROWS = 10_000
"""Rows that are written at once, however little time has passed."""
WAITING_MAX = 4
ERROR_TOLD_EVERY_S = 60.0
STOP_S = 10.0
"""Time for the last rows when the broker is stopped."""


class Telemetry:
    """Telemetry of one broker, made before its first client connects. Raises ConfigError without pyarrow, or if the
    folder cannot be written."""

    def __init__(self, settings: Settings, broker: Broker, loop: asyncio.AbstractEventLoop,
                 now: Callable[[], float]) -> None:
        table = settings.telemetry
        self._broker = broker
        self._loop = loop
        self._now = now
        self._every_s = table.every_s
        self.lake = _open_lake(table)
        self.recorder = Recorder()
        self.observer = broker.registry.observer = LakeObserver(
            broker.registry, self.recorder, run=self.lake.run, broker=settings.server.name,
            wall_offset_s=broker.registry.wall_offset_s, sample_s=table.sample_s, idle_s=table.idle_s,
            tick_s=broker.governor.tick_s,
        )  # fmt: skip
        self.written_rows = 0
        self.lost_rows = 0
        """Rows that the recorder had and that were not written."""
        self.errors = 0
        self.last_error = ""
        self._told: tuple[str, float] = ("", 0.0)
        self._waiting = 0
        self._queue: SimpleQueue[list[RowBatch] | None] = SimpleQueue()
        # The process does not wait for it at its end: a disk may hang for ever.
        self._writer = threading.Thread(target=self._write_all, name="headway-lake", daemon=True)
        self._taken_s = now()
        self._seconds = Repeating(loop, SECOND_S, self._second)

    @property
    def dropped_rows(self) -> int:
        """Rows that did not get into the lake."""
        return self.lost_rows + self.recorder.dropped_rows

    def start(self, settings: Settings) -> None:
        self.configured(settings, settings.policies_text)
        self._writer.start()
        self._seconds.start()
        self._second()

    def configured(self, settings: Settings, policies_text: str) -> None:
        """Records that these settings, policies and topics are in force from now on."""
        server = settings.server
        self.observer.configured(
            self._now(), version=__version__, sweep_s=server.sweep_s, late_after_s=server.late_after_s,
            config=policies_text,
        )  # fmt: skip

    def _second(self) -> None:
        self._whole()
        if self._now() - self._taken_s >= self._every_s - SECOND_S / 2 or self.recorder.rows >= TAKE_ROWS:
            self._hand_over()

    def _whole(self) -> None:
        self.observer.whole(self._now(), late_s=self._broker.governor.late_s, rss_bytes=memory_rss_bytes(),
                            dropped_rows=self.lost_rows)

    def _hand_over(self) -> None:
        self._taken_s = self._now()
        batches = self.recorder.take()
        if self._waiting >= WAITING_MAX:
            self._failed(sum(batch.rows for batch in batches), "the disk does not keep up")
            return
        self._waiting += 1
        self._queue.put(batches)

    # -- the thread -------------------------------------------------------------------------------------------------

    def _write_all(self) -> None:
        for batches in iter(self._queue.get, None):
            written, lost, text = 0, 0, ""
            for batch in batches:
                try:
                    self.lake.write(batch)
                    written += batch.rows
                except Exception as error:  # noqa: BLE001 - whatever ails the disk or Arrow, the broker goes on
                    lost += batch.rows
                    text = getattr(error, "strerror", None) or str(error)
            try:
                self._loop.call_soon_threadsafe(self._written, written, lost, text)
            except RuntimeError:
                return  # the loop has ended without us

    def _written(self, written: int, lost: int, text: str) -> None:
        self._waiting -= 1
        self.written_rows += written
        if lost:
            self._failed(lost, text)

    def _failed(self, rows: int, text: str) -> None:
        """Counts lost rows, and logs why, the same text at most once a minute."""
        self.lost_rows += rows
        self.errors += 1
        self.last_error = text
        now = self._now()
        if self._told[0] != text or now - self._told[1] >= ERROR_TOLD_EVERY_S:
            self._told = (text, now)
            log.error("telemetry: %d rows could not be written to %s: %s", rows, self.lake.folder, text)

    def stop(self) -> None:
        """Writes the last rows, and waits up to ``STOP_S`` for them."""
        if not self._seconds.running:
            return
        self._seconds.stop()
        self._whole()
        self._queue.put(self.recorder.take())
        self._queue.put(None)
        self._writer.join(STOP_S)
        if self._writer.is_alive():
            log.error("telemetry: %s does not keep up; the last rows are lost", self.lake.folder)


def _open_lake(table: TelemetryTable) -> Lake:
    try:
        from headway.store.lake import Lake, new_run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyarrow":
            raise
        text = "telemetry needs the package pyarrow: pip install 'headway[telemetry]' (or telemetry.enabled = false)"
        raise ConfigError(text) from None
    try:
        return Lake(table.folder, new_run(time.time(), secrets.token_hex(4)), table.disk_bytes)
    except OSError as error:
        why = f"cannot write there ({error.strerror}); choose another, or enabled = false"
        text = f"telemetry.path {table.folder}: {why}"
        raise ConfigError(text) from error


# -- readiness ---------------------------------------------------------------------------------------------------------
#
# Readiness: whether the broker can do its work for a further client, and each reason why not.


class Stage(StrEnum):
    STARTING = "starting"
    SERVING = "serving"
    STOPPING = "stopping"


class Readiness:
    def __init__(self, broker: Broker, journal: JournalWriter | None, now: Callable[[], float]) -> None:
        self.stage = Stage.STARTING
        self._broker = broker
        self._journal = journal
        self._now = now
        self._asked: list[Callable[[], str]] = []

    def ask(self, trouble: Callable[[], str]) -> None:
        """``trouble`` is asked from now on. It returns a reason in words, which anybody may read; empty: there is none.
        """
        self._asked.append(trouble)

    def reasons(self) -> list[str]:
        """Returns why the broker is not ready, a line each."""
        found = [] if self.stage is Stage.SERVING else [f"the broker is {self.stage}"]
        if self._journal is not None and self._journal.error:
            found.append(f"the journal cannot be written, and nothing durable is confirmed: {self._journal.error}")
        now = self._now()
        found += [
            f"records cannot go to disk: {pool.disk_error}"
            for pool in self._broker.registry.distinct_pools() if pool.disk_broken(now)
        ]  # fmt: skip
        found += [text for trouble in self._asked if (text := trouble())]
        return found
