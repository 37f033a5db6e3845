"""Marks: where a snapshot begins and ends, for subscribers that ask for it (option ``marks``).

A mark is a small record of the broker's own without payload. Its user properties say what it is, as of which offset the
snapshot is, and at its end how many records it had and how many keys were evicted before they could be sent. Between
the marks, each record says its key.

A snapshot leaves out a key that is updated before it is read, because the record follows as a live one. A query has no
live records, so it reads the state as it was (log/states.py). Where that takes too much memory, because its
client reads too slowly, it is broken off, and the mark at its end says so.
 A mark's topic is the filter with ``-`` for each wildcard, so it matches the
filter. It is sent at most once (QoS 0) and has no offset of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from headway.core.base import Reason
from headway.core.consumer import REPLACED, Subscription
from headway.core.delivery.frames import record_at
from headway.core.delivery.rendering import Losses
from headway.core.log import State, StateReading, share_of
from headway.core.message import EVENT, TOLD_KEY, Properties, Record

# -- marks -------------------------------------------------------------------------------------------------------------


BEGIN, END = "snapshot_begin", "snapshot_end"
BROKEN = "snapshot_broken"
STEP_RECORDS = 128
"""The number of records that one step of a query looks at."""


class Records(Protocol):
    """The records between the marks."""

    upto: int

    @property
    def held_bytes(self) -> int: ...
    @property
    def missed(self) -> int: ...
    def __next__(self) -> Record | None: ...
    def close(self) -> None: ...
    def waiting(self) -> tuple[int, int]: ...


class QueriedRecords:
    """The records of a state that are accepted, as they were at one sequence."""

    missed = 0

    def __init__(self, reading: StateReading, accept: Callable[[Record], bool]) -> None:
        self._reading = reading
        self._accept = accept
        self._some: list[Record] = []
        self._accepted = 0
        self._ends_step = False
        """The step that found the last records has not ended yet, with None."""
        self.upto = reading.upto

    @property
    def given_up(self) -> str:
        return self._reading.given_up

    def __next__(self) -> Record | None:
        if not self._some:
            if self._reading.closed:
                raise StopIteration
            if self._ends_step:
                self._ends_step = False
                return None
            self._some = [record for record in self._reading.take(STEP_RECORDS) if self._accept(record)]
            self._accepted += len(self._some)
            self._some.reverse()
            self._ends_step = bool(self._some)
        return self._some.pop() if self._some else None

    @property
    def held_bytes(self) -> int:
        return self._reading.saved_bytes

    def waiting(self) -> tuple[int, int]:
        reading = self._reading
        records = len(self._some) + share_of(reading.left, self._accepted, reading.taken - self._accepted)
        return records, records * reading.state.record_bytes

    def close(self) -> None:
        self._some.clear()
        self._reading.close()


class ListedRecords:
    """Records that are all there, as of one sequence."""

    missed = held_bytes = 0

    def __init__(self, records: list[Record], upto: int, record_bytes: int) -> None:
        self._left = records[::-1]
        self._record_bytes = record_bytes
        """The mean size of a record."""
        self.upto = upto

    def __next__(self) -> Record | None:
        if not self._left:
            raise StopIteration
        return self._left.pop()

    def waiting(self) -> tuple[int, int]:
        return len(self._left), len(self._left) * self._record_bytes

    def close(self) -> None:
        self._left.clear()


SOME = "some"
"""Stands for a number of evicted keys that the client may not know. That there are any it has to know, for its answer
may lack them."""


def evicted_text(evicted_records: int, is_told: bool) -> str:
    """Returns how many keys were evicted, for a client; ``is_told``: whether it may know the number."""
    return str(evicted_records) if is_told or not evicted_records else SOME


class MarkedSnapshot:
    """Records of a state between two marks: a source of records for a backfill. Calls ``over`` when it is
    closed."""

    def __init__(
        self, state: State, records: Records, filter: str, over: Callable[[], object] = lambda: None, *,
        tells_keys: bool = True, tells_evicted: bool = True,
    ) -> None:  # fmt: skip
        """``tells_keys`` and ``tells_evicted``: whether the client may know how many keys are in the whole state, and
        how many were evicted from it."""
        self._state = state
        self._tells_keys = tells_keys
        self._tells_evicted = tells_evicted
        self._records = records
        self._topic = "/".join("-" if level in ("+", "#") else level for level in filter.split("/"))
        self._over = over
        self._as_of = records.upto
        self._sent = 0
        self._marks = [END, BEGIN]
        """The marks that are still to be sent."""

    def __iter__(self) -> MarkedSnapshot:
        return self

    def __next__(self) -> Record | None:
        if len(self._marks) == 2:
            return self._mark(keys=len(self._state)) if self._tells_keys else self._mark()
        if not self._marks:
            raise StopIteration
        try:
            record = next(self._records)
        except StopIteration:
            return self._end()
        if record is None:
            return None
        self._sent += 1
        key = self._state.key_of(record)
        if key is None or record.properties.user_value(TOLD_KEY) is not None:
            return record
        return _with_user(record, ((TOLD_KEY, key),))

    def _end(self) -> Record:
        why = self._records.given_up if isinstance(self._records, QueriedRecords) else ""
        if not why:
            return self._mark(records=self._sent, missing=self._records.missed)
        self._marks = [BROKEN]
        return self._mark(records=self._sent, why=why)

    def _mark(self, **figures: int | str) -> Record:
        told = {EVENT: self._marks.pop(), "headway-offset": str(self._as_of)}
        told |= {f"headway-{name}": str(value) for name, value in figures.items()}
        told["headway-evicted"] = evicted_text(self._state.evicted_records, self._tells_evicted)
        return Record(self._topic, b"", Properties(user=tuple(told.items())))

    @property
    def held_bytes(self) -> int:
        return self._records.held_bytes

    def waiting(self) -> tuple[int, int]:
        records, size = self._records.waiting()
        return records + len(self._marks), size

    def close(self) -> None:
        self._marks.clear()
        self._records.close()
        self._over()


def _with_user(record: Record, pairs: tuple[tuple[str, str], ...]) -> Record:
    properties = msgspec.structs.replace(record.properties, user=record.properties.user + pairs)
    return msgspec.structs.replace(record, properties=properties)


# -- handover ----------------------------------------------------------------------------------------------------------
#
# A handover gives the unsent records of a replaced subscription to its successor, before the successor's own records.
#
# MQTT 5 (3.8.4) says that no message is lost when a subscription is replaced. The old cursor stays in its own lane. It
# is read record by record, as the first backfill of the new subscription, up to the point where the new one began.


class Handover:
    """A source of records for a backfill. Calls ``done`` once, with the old subscription, when no record is left."""

    held_bytes = 0

    def __init__(self, old: Subscription, lost: Losses, done: Callable[[Subscription], object]) -> None:
        self._old = old
        old.become(REPLACED)
        self._upto = old.stop_number = old.feed.lane.count
        self._end = old.feed.lane.end
        self._lost = lost
        self._done = done
        self._closed = False

    def __iter__(self) -> Handover:
        return self

    def __next__(self) -> Record | None:
        old, cursor = self._old, self._old.cursor
        if not self._closed and not old.ended:
            old.pass_left_out()
        if not self._closed and not old.ended and cursor.number < self._upto:
            cursor.step()
            chunk = cursor.chunk
            index = chunk.index_at(cursor.position)
            try:
                record = record_at(old.feed.lane.dialect, chunk, index)
            except OSError:
                self._lost(old.skip_to(cursor.number + 1, Reason.SPILL_FAILED), Reason.SPILL_FAILED)
                return None
            size = chunk.ends[index] - chunk.record_start(index)
            cursor.advance(size)
            old.counters.pass_over(1, size)  # the new subscription delivers it
            return record
        raise StopIteration

    def waiting(self) -> tuple[int, int]:
        cursor, left_out = self._old.cursor, self._old.left_out
        if self._closed or self._old.ended:
            return 0, 0
        records = max(0, self._upto - cursor.number - left_out.records)
        return records, max(0, self._end - cursor.position - left_out.bytes)

    def close(self) -> None:
        """Ends the old subscription, and counts its remaining records as lost."""
        if self._closed or self._old.ended:
            return
        self._closed = True
        old, lane = self._old, self._old.feed.lane
        lane.receive()
        self._lost(old.skip_to(self._upto, Reason.SUBSCRIPTION_ENDED), Reason.SUBSCRIPTION_ENDED)
        old.counters.pass_over(lane.count - old.cursor.number, lane.end - old.cursor.position)
        old.cursor.jump_to_end()  # the new subscription gets the later records by its own lane
        self._done(old)
