"""Retained records in the journal: a stream of which, for each topic, the last entry counts.

Theory of operation. A change is one more entry, and an empty payload ends a topic. When the stream is twice as large as
what counts in it, every topic is written once more, some at each commit; what stood before the first of these then
counts no longer.
"""

from __future__ import annotations

from headway.core.log import KeptRun, Retained
from headway.core.message import Record
from headway.server.journal.chunk_cache import Clock
from headway.server.journal.entry_codec import encode_run
from headway.store.journal.batch import Entry
from headway.store.journal.stream import Stream

AGAIN_RECORDS = 500
"""Written once more at a time."""
SPARE_BYTES = 16 * 1024 * 1024
"""A stream smaller than this is left alone."""
RECORD_BYTES = 100
"""What an entry takes up beside its payload, about."""


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
        """What the topic has now."""
        self._number += 1
        record = self._retained.get(topic) or Record(topic, b"", retain=True)
        run = record.run()
        return encode_run(KeptRun("", run, self._number, ""), self._clock.wall_offset_s)

    def some_again(self) -> list[Entry]:
        """Entries to be written with the next commit so that older ones can go."""
        if not self._left and not self._done:
            live = self._retained.bytes + RECORD_BYTES * len(self._retained)
            if self._stream.bytes > 2 * live + SPARE_BYTES:
                self._left, self._since = self._retained.topics(), self._number + 1
        if not self._left:
            return []
        some, self._left = self._left[-AGAIN_RECORDS:], self._left[:-AGAIN_RECORDS]
        entries = [self.entry(topic) for topic in some]
        if not self._left:
            self._done = self._since
        return entries

    def done_upto(self) -> int:
        """Entries before this one count no longer; 0: there are none of which that is new."""
        done, self._done = self._done, 0
        return done
