"""Focus: what subscribers with a selector are told of keys that they lose sight of (option ``out_of_focus``).

A key is in focus while its latest record matches the selector. When the next one does not, or deletes the key, the
subscribers get a record without payload, with the event ``out_of_focus``, the key and the reason. It is worked out once
for all subscribers of a lane, when the record is published, from the record that the state had until then.

A pass over a state (conflation, ``from``) does not know what its reader has seen, so it tells of every key that changed
and does not match; a reader may hear of a key that it never had. A key that is lost, and changes again before a pass
comes to it, is told of once more.
"""

from __future__ import annotations

from collections.abc import Callable

from headway.core.log.states.state import State
from headway.core.message import EVENT, OUT_OF_FOCUS, TOLD_KEY, Properties, Record, is_delete

LOST_MAX = 256
FOCUS_BYTES = LOST_MAX * 250
"""The memory of a focus, with ``LOST_MAX`` keys that were lost."""


class Focus:
    __slots__ = ("_floor", "_forgotten", "_lost", "_passes", "accepts", "covers", "state")

    def __init__(
        self, state: State, accepts: Callable[[Record], bool], covers: Callable[[Record], bool], since: int
    ) -> None:
        self.state = state
        """The keyed topic's state."""
        self.accepts = accepts
        """Tells whether a record is in focus."""
        self.covers = covers
        """Tells whether a record would be, whatever the selector says."""
        self._lost: dict[tuple[str, str | None], int] = {}
        """The keys that were lost last, each with the sequence."""
        self._forgotten = since
        """All losses after this sequence are in ``_lost``."""
        self._passes = 0
        """The number of passes that go on."""
        self._floor = 0
        """The lowest sequence after which one of them reads changes."""

    def begins(self, after: int) -> None:
        """Notes that a pass over the changes after this sequence begins."""
        self._floor = min(self._floor, after) if self._passes else after
        self._passes += 1

    def ends(self) -> None:
        self._passes -= 1

    def loses(self, topic: str, key: str | None, before: Record | None, sequence: int) -> bool:
        """Tells whether subscribers lose sight of a key, of which the state had the record ``before``."""
        if before is None:
            return self.state.evicted_records > 0  # it may have been in focus
        if self.accepts(before):
            self._lost.pop((topic, key), None)
            self._lost[topic, key] = sequence
            if len(self._lost) > LOST_MAX:
                self._forgotten = self._lost.pop(next(iter(self._lost)))
            return True
        if not self._passes:
            return False
        # A pass that was to tell of the loss does not come to the entry that this record replaces.
        return self._forgotten > self._floor or self._lost.get((topic, key), 0) > self._floor

    def left(self, record: Record) -> Record | None:
        """Returns what subscribers are told when a record does not match; None: nothing, it is not for them."""
        if not self.covers(record):
            return None
        key = self.state.key_of(record)
        why = "changed"
        if self.state.tombstones and is_delete(record, key):
            why = record.properties.user_value("headway-why") or "deleted"
        user: tuple[tuple[str, str], ...] = ((EVENT, OUT_OF_FOCUS),)
        user += () if key is None else ((TOLD_KEY, key),)
        return Record(
            record.topic, b"", Properties(user=(*user, ("headway-why", why))), record.qos,
            sequence=record.sequence, time_s=record.time_s, publisher=record.publisher, exchange=record.exchange,
        )  # fmt: skip
