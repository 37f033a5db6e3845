"""Tidying: segments that nobody needs are removed, now and then, by the writer.

Rules:
- The main stream loses what is older than every record that somebody wants, up to the last snapshot before that.
- Behind it there may be much that has come and gone while an old record waits. A stretch between two snapshots that has
  facts alone says nothing that the later snapshot does not: it goes as well.
- A recorded topic loses what is older than its ``keep``, but nothing that somebody durable still needs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from headway.core.broker import Broker
from headway.core.ledger import MAIN, Kept, Ledger
from headway.core.topics import overlaps
from headway.server.fields import Keep
from headway.server.journal.archive import Archive, stream_name
from headway.server.journal.handle import Shelf
from headway.server.journal.restore import RETAINED
from headway.server.journal.retained import RetainedLog
from headway.server.settings import TopicTable
from headway.store.journal.stream import Stream

log = logging.getLogger("headway")


class Tidying:
    def __init__(
        self, broker: Broker, ledger: Ledger, streams: Mapping[str, Stream], archive: Archive, shelf: Shelf,
        retained: RetainedLog, topics: Sequence[TopicTable], submit: Callable[[Callable[[], None]], None],
    ) -> None:  # fmt: skip
        """``submit``: to the writer, behind what it was given before."""
        self.snapshots: list[int] = []
        """Their sequences."""
        self.trimmed = 0
        """Records before this sequence may be gone."""
        self._freed = self._looked_upto = 0
        """The snapshot before which nothing is left, and the one up to which stretches were looked at."""
        self._broker = broker
        self._ledger = ledger
        self._streams = streams
        self._archive = archive
        self._shelf = shelf
        self._retained = retained
        self._topics = topics
        self._submit = submit

    def tidy(self, now: float, committed_sequence: int) -> None:
        sequence, held = self._broker.registry.sequence, min(committed_sequence + 1, self._shelf.needed_sequence())
        held = int(min(held, self._broker.writers.needed_sequence()))
        for topic in self._topics:
            if topic.keep is not None:
                stream = self._archive.recorded[stream_name(topic.filter)].stream
                by_place = self._ledger.needed_sequence(sequence, partial(_reads, topic.filter))
                self.trimmed = max(self.trimmed, min(by_place, held))
                wall_us = int((now + self._archive.wall_offset_s) * 1e6)
                self._free(stream, partial(_trim, stream, topic.keep, wall_us, min(by_place, held)))
        retained_upto = self._retained.done_upto()
        if retained_upto:
            self._free(self._streams[RETAINED], partial(self._streams[RETAINED].free_before, retained_upto))
        self._tidy_main(min(self._ledger.needed_sequence(sequence, lambda kept: not kept.recorded_only), held))

    def _tidy_main(self, needed: int) -> None:
        main = self._streams[MAIN]
        passed = [sequence for sequence in self.snapshots if sequence < needed]
        if passed and passed[-1] > self._freed:
            self.snapshots = self.snapshots[len(passed) - 1 :]
            self._freed = passed[-1]
            self.trimmed = max(self.trimmed, passed[-1])
            self._free(main, partial(main.free_before, passed[-1]))
        elif self.snapshots and self.snapshots[-1] > self._looked_upto:
            self._looked_upto = self.snapshots[-1]
            begin = {segment.first_sequence for segment in main.segments}
            self.snapshots = [one for one in self.snapshots if one in begin or one > main.last_sequence]
            self._free(main, partial(main.free_between, frozenset(self.snapshots)))

    def _free(self, stream: Stream, free: Callable[[], object]) -> None:
        def work() -> None:
            try:
                free()
            except OSError as error:
                log.error("cannot remove old segments from %s: %s", stream.folder, error.strerror or error)

        self._submit(work)


def _trim(stream: Stream, keep: Keep, now_us: int, needed: int) -> None:
    """What is recorded for no longer, and nobody durable needs."""
    if keep.seconds is not None:
        stream.free_for_age(now_us - int(keep.seconds * 1e6), needed)
    if keep.bytes is not None:
        stream.free_for_size(keep.bytes, needed)


def _reads(filter: str, kept: Kept) -> bool:
    """Whoever has this place may read topics that this filter matches."""
    return any(overlaps(filter, own) for own in kept.filters() if own[0] != "$")
