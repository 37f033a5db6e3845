"""Retained records in the journal: a stream of its own in which the last entry of each topic counts.

Theory of operation. Each change appends an entry; an empty payload ends a topic. When the stream is twice as large as
the entries that count, every topic is written once more, some with each commit. Then everything before the first of
these entries is freed.
"""

from __future__ import annotations

from headway.core.log import JournaledRun, Retained
from headway.core.message import Record
from headway.server.journal.entries import Clock, encode_run
from headway.store.journal import Entry, Stream

RETAINED = "retained"
"""The stream of retained records. The last one of each topic counts."""
AGAIN_RECORDS = 500
"""Topics that are written once more with one commit."""
SPARE_BYTES = 16 * 1024 * 1024
"""A stream is not rewritten for less than this."""
RECORD_BYTES = 100
"""Overhead of an entry beside its payload, about."""


class RetainedLog:
    def __init__(self, retained: Retained, stream: Stream, clock: Clock) -> None:
        self._retained = retained
        self._stream = stream
        self._clock = clock
        self._number = stream.last_sequence
        self._left: list[str] = []
        """Topics to be written once more."""
        self._since = 0
        self._done = 0

    def entry(self, topic: str) -> Entry:
        """Returns an entry with the topic's current record."""
        self._number += 1
        record = self._retained.get(topic) or Record(topic, b"", retain=True)
        run = record.run()
        return encode_run(JournaledRun("", run, self._number, ""), self._clock.wall_offset_s)

    def some_again(self) -> list[Entry]:
        """Entries that repeat older ones, to be written with the next commit."""
        if not self._left and not self._done:
            live = self._retained.bytes + RECORD_BYTES * len(self._retained)
            if self._stream.bytes > 2 * live + SPARE_BYTES:
                self._left, self._since = self._retained.topics(), self._number + 1
        if not self._left:
            return []
        some = self._left[-AGAIN_RECORDS:]
        del self._left[-AGAIN_RECORDS:]  # no copy of the rest: there may be a million topics
        entries = [self.entry(topic) for topic in some]
        if not self._left:
            self._done = self._since
        return entries

    def done_upto(self) -> int:
        """Entries before this one count no longer; 0: nothing changed since the last call."""
        done, self._done = self._done, 0
        return done
