"""The history's writer: a thread appends verdicts and ends of connections to files. The loop never waits for it.

Twice a second the entries since the last time go to the thread, so a crash loses at most the last second. What cannot
be written is kept and tried again: at most ``UNWRITTEN_MAX`` entries, beyond which the oldest are dropped and counted.
Ends of clients that were never let in are limited, because anybody may cause them.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from queue import SimpleQueue

from headway.core.base import ConfigError, format_duration
from headway.core.policy import Verdict, VerdictBook
from headway.server.config import HistorySettings, Settings
from headway.server.connections import End, Ends
from headway.server.loop import Repeating
from headway.store.history import (
    EntryKind,
    FolderLock,
    FolderLocked,
    HistoryEntry,
    Series,
    encode_entry,
    end_entry,
    verdict_entry,
)

log = logging.getLogger("headway")

WRITE_S = 0.5
TIDY_S = 60.0
UNWRITTEN_MAX = 10_000
STRANGERS_MAX = 20
"""Ends of clients that were not let in, in each write."""
ERROR_TOLD_EVERY_S = 60.0
STOP_S = 5.0
"""Time for the last entries when the broker is stopped."""

Item = tuple[Verdict, str] | End
"""A verdict and the user it is about, or an end. The thread makes it an entry."""


class HistoryWriter:
    """The history of one broker. Raises ConfigError if its folder cannot be written, or another broker writes to it."""

    def __init__(self, limits: HistorySettings, loop: asyncio.AbstractEventLoop, now: Callable[[], float]) -> None:
        self.folder = limits.folder
        self.run = secrets.token_hex(4)
        """The name of this start, in each entry."""
        self.written_entries = 0
        self.dropped_entries = 0
        self.errors = 0
        self.bytes = 0
        """The size of all files when they were last looked at."""
        self.last_error = ""
        """Why the last write failed; empty: it did not."""
        self._loop = loop
        self._now = now
        self._lock = _lock(limits)
        self._series = {kind: Series(limits.folder, kind, limits.bytes_max // 2, limits.keep_s) for kind in EntryKind}
        self._unwritten: deque[Item] = deque()
        self._writing: Sequence[Item] = ()
        """Entries that the thread has; none while it only tidies."""
        self._strangers = 0
        self._told: tuple[str, float] = ("", 0.0)
        self._tidied_s = now()
        self._flushed: list[asyncio.Future[None]] = []
        self._queue: SimpleQueue[list[Item] | None] = SimpleQueue()
        # The process does not wait for it at its end: a disk may hang for ever.
        self._thread = threading.Thread(target=self._write_all, name="headway-history", daemon=True)
        self._ticks = Repeating(loop, WRITE_S, self._hand_over)

    def start(self, _: Settings) -> None:
        self._thread.start()
        self._queue.put([])  # tidies, and finds the size
        self._ticks.start()

    # -- what happens -----------------------------------------------------------------------------------------------

    def add_verdict(self, verdict: Verdict, user: str) -> None:
        self._add((verdict, user))

    def add_end(self, end: End) -> None:
        if not end.admitted:
            self._strangers += 1
            if self._strangers > STRANGERS_MAX:
                return
        self._add(end)

    def _add(self, item: Item) -> None:
        self._unwritten.append(item)
        if len(self._unwritten) > UNWRITTEN_MAX:
            self._unwritten.popleft()
            self.dropped_entries += 1

    def unwritten(self) -> Iterator[HistoryEntry]:
        """Returns the entries that are not known to be in a file, newest first. They are made as they are taken."""
        return map(self._entry, [*reversed(self._unwritten), *reversed(self._writing)])

    async def flush(self, seconds: float) -> None:
        """Waits until everything so far is in the files, or a write failed, or so long."""
        errors = self.errors
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while (self._unwritten or self._writing) and self.errors == errors:
                    done = self._loop.create_future()
                    self._flushed.append(done)
                    self._hand_over()
                    await done

    def _hand_over(self) -> None:
        if self._writing:
            return
        self._strangers = 0
        tidy = self._now() - self._tidied_s >= TIDY_S
        if self._unwritten or tidy:
            if tidy:
                self._tidied_s = self._now()
            batch = list(self._unwritten)
            self._unwritten.clear()
            self._queue.put(batch)
            self._writing = batch or ()

    # -- the thread -------------------------------------------------------------------------------------------------

    def _write_all(self) -> None:
        for batch in iter(self._queue.get, None):
            failed: list[Item] = []
            text = ""
            try:
                failed, text = self._write(batch)
                for series in self._series.values():
                    series.remove_old(time.time())
                size = sum(series.bytes for series in self._series.values())
            except OSError as error:
                text, size = text or error.strerror or str(error), self.bytes
            try:
                self._loop.call_soon_threadsafe(self._written, batch, failed, size, text)
            except RuntimeError:
                return  # the loop has ended without us
        for series in self._series.values():
            series.close()

    def _write(self, batch: list[Item]) -> tuple[list[Item], str]:
        """Returns the items that could not be written, in their order, and why."""
        failed: set[int] = set()
        text = ""
        for kind, series in self._series.items():
            numbers = [number for number, item in enumerate(batch) if isinstance(item, End) == (kind is EntryKind.END)]
            lines = [(number, self._line(batch[number])) for number in numbers]
            for group in _groups(lines, series.part_bytes):
                try:
                    series.append(b"".join(line for _, line in group), time.time())
                except OSError as error:
                    failed |= {number for number in numbers if number >= group[0][0]}
                    text = error.strerror or str(error)
                    break
        return [item for number, item in enumerate(batch) if number in failed], text

    def _line(self, item: Item) -> bytes:
        try:
            return encode_entry(self._entry(item)) + b"\n"
        except Exception:  # one entry that is no JSON must not cost the others
            log.exception("history: an entry cannot be written")
            return b""

    def _entry(self, item: Item) -> HistoryEntry:
        if not isinstance(item, End):
            return verdict_entry(*item, self.run)
        return end_entry(
            wall_s=item.wall_s, client=item.client, user=item.username, listener=item.listener, address=item.address,
            lasted_s=item.lasted_s, admitted=item.admitted, reason=item.reason, text=item.text, run=self.run,
        )  # fmt: skip

    # -- back on the loop -------------------------------------------------------------------------------------------

    def _written(self, batch: list[Item], failed: list[Item], size: int, text: str) -> None:
        if batch is self._writing:
            self._writing = ()
        self.bytes = size
        self.written_entries += len(batch) - len(failed)
        if failed:
            room = max(0, UNWRITTEN_MAX - len(self._unwritten))
            self.dropped_entries += max(0, len(failed) - room)
            self._unwritten.extendleft(islice(reversed(failed), room))
        if text:
            self._failed(text)
        elif self.last_error:
            log.info("history: %s can be written again", self.folder)
        self.last_error = text
        flushed, self._flushed = self._flushed, []
        for one in flushed:
            if not one.done():
                one.set_result(None)

    def _failed(self, text: str) -> None:
        """Counts a failed write, and logs why, the same text at most once a minute."""
        self.errors += 1
        now = self._now()
        if self._told[0] != text or now - self._told[1] >= ERROR_TOLD_EVERY_S:
            self._told = (text, now)
            log.error("history: %s cannot be written: %s; %d entries wait, %d are lost", self.folder, text,
                      len(self._unwritten), self.dropped_entries)

    def stop(self) -> None:
        """Writes the last entries, and waits up to ``STOP_S`` for them."""
        if not self._ticks.running:
            self._lock.close()
            return
        self._ticks.stop()
        self._queue.put(list(self._unwritten))
        self._queue.put(None)
        self._thread.join(STOP_S)
        if self._thread.is_alive():
            log.error("history: %s does not answer within %s; the last entries are lost", self.folder,
                      format_duration(STOP_S))
        else:
            self._lock.close()


def open_history(
    table: HistorySettings, verdicts: VerdictBook, ends: Ends, loop: asyncio.AbstractEventLoop, now: Callable[[], float]
) -> HistoryWriter | None:
    """Returns the writer of what these books get from now on; None: the history is switched off. Raises ConfigError."""
    if not table.enabled:
        return None
    writer = HistoryWriter(table, loop, now)
    verdicts.keep, ends.keep = writer.add_verdict, writer.add_end
    return writer


def _groups(lines: list[tuple[int, bytes]], bytes_max: int) -> list[list[tuple[int, bytes]]]:
    """Divides numbered lines into groups of so many bytes at most. A longer line is a group of its own."""
    groups: list[list[tuple[int, bytes]]] = []
    size = bytes_max
    for number, line in lines:
        if size + len(line) > bytes_max:
            groups.append([])
            size = 0
        groups[-1].append((number, line))
        size += len(line)
    return groups


def _lock(limits: HistorySettings) -> FolderLock:
    try:
        return FolderLock(limits.folder)
    except FolderLocked:
        raise ConfigError(f"history.path {limits.folder}: another broker writes there; each needs its own") from None
    except OSError as error:
        why = f"cannot write there ({error.strerror}); choose another, or enabled = false"
        raise ConfigError(f"history.path {limits.folder}: {why}") from error
