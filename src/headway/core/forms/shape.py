"""Shape: the form in which the subscribers of a lane get records, if it is not the publisher's.

- **Projection** (option ``select``): some fields of each record. The payload may lack the key of its record, so the key
  is told with the user property ``headway-key``.
- **Delta** (option ``delta``): a record has only what has changed since the record of its key before, as a JSON merge
  patch, and is marked so. All other records are whole, and without a mark.

A record is put into shape once for all subscribers of a lane, when it is published. Records that come from elsewhere (a
state, retained or recorded records) are whole, and put into shape when they are written.

A delta is only for who has the record before. For all readers of a lane to have it, the lane itself must have told it,
behind its *floor*: the last sequence at which a reader came into the lane, or has left something out. So the first
record of each key behind the floor is whole, for all readers. A reader that leaves something out while deltas wait for
it in the lane does not read these: it gets the latest records of the state, and goes on at the end of the lane
(``Subscription.astray``).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headway.core.log import State
from headway.core.message import (
    DELTA,
    EVENT,
    TOLD_KEY,
    KeyExtractor,
    Properties,
    Record,
    Run,
    difference,
    says_delete,
)

SHAPE_BYTES = 8192
"""The memory of a shape, whose fields have a decoder of their own, without the text of its option."""
Project = Callable[[Record], bytes]


class Deltas:
    """The deltas of a lane."""

    __slots__ = ("accepts", "floor", "state")

    def __init__(self, state: State, accepts: Callable[[Record], bool], since: int) -> None:
        self.state = state
        """The keyed topic's state, whose records deltas are of."""
        self.accepts = accepts
        """Tells whether a record was in the lane."""
        self.floor = since
        """All readers have what the lane has told behind this sequence."""

    def raise_floor(self, sequence: int) -> None:
        self.floor = max(self.floor, sequence)

    def base_of(self, record: Record, before: Record | None) -> Record | None:
        """Returns the record that all readers have of the key; None: a reader may not have it, or one of the two is no
        ordinary record."""
        if before is None or before.sequence <= self.floor or not (record.payload and before.payload):
            return None
        if says_delete(record.properties) or says_delete(before.properties) or not self.accepts(before):
            return None
        return before


class Shape:
    __slots__ = ("_key_of", "_project", "deltas")

    def __init__(self, project: Project | None, key_of: KeyExtractor | None, deltas: Deltas | None = None) -> None:
        self._project = project
        """Returns the payload that subscribers get for a record; None: its own."""
        self._key_of = key_of
        """Finds the keys of records; None: no keyed ``[[topic]]`` covers them."""
        self.deltas = deltas
        """None: all records are whole."""

    def whole(self, record: Record) -> Record:
        """Returns the record in the form in which it is whole. The broker's own marks, and records without payload,
        stay as they are."""
        if not record.payload or not record.sequence:
            return record
        if self.deltas is not None and record.properties.user_value(EVENT) == DELTA:  # its publisher says so
            left = [pair for pair in record.properties.user if pair[0] != EVENT]
            record = _with(record, tuple(left), record.payload, native=None)
        if self._project is None:
            return record
        key = None if self._key_of is None else self._key_of.of(record)
        user = record.properties.user
        if key is not None:
            user = (*(pair for pair in user if pair[0] != TOLD_KEY), (TOLD_KEY, key))
        return _with(record, user, self._project(record), native=record.properties.native)

    def part(self, run: Run, sequence: int, before: Record | None, now: float) -> Run:
        """Returns a run of one record in the form that the lane gets. The state had the record ``before`` of its
        key."""
        record = run.record(0, sequence, now)
        whole = self.whole(record)
        shaped = self._delta(record, whole, before) or whole
        return run if shaped is record else as_run(shaped, run)

    def _delta(self, record: Record, whole: Record, before: Record | None) -> Record | None:
        """Returns the record as a delta; None: it is to be whole."""
        if self.deltas is None:
            return None
        key_of = self.deltas.state.key
        base, key = self.deltas.base_of(record, before), key_of.of(record)
        if base is None or key is None:
            return None
        known = base.payload if self._project is None else self._project(base)
        patch = difference(known, whole.payload, keep=_member(key_of.text))
        if patch is None or len(patch) >= len(whole.payload):
            return None
        left = (pair for pair in record.properties.user if pair[0] not in (EVENT, TOLD_KEY))
        user = (*left, (EVENT, DELTA), (TOLD_KEY, key))
        return _with(record, user, patch, native=record.properties.native)


def _member(key: str) -> str | None:
    """Returns the member of the payload that is the key; None: it is none, or lies deeper."""
    return key[1:].replace("~1", "/").replace("~0", "~") if key.startswith("/") and key.count("/") == 1 else None


def _with(record: Record, user: tuple[tuple[str, str], ...], payload: bytes, *, native: bytes | None) -> Record:
    properties: Properties = msgspec.structs.replace(record.properties, user=user, native=native)
    return msgspec.structs.replace(record, payload=payload, properties=properties)


def as_run(record: Record, of: Run) -> Run:
    """Returns the record, which was made of this run's, as a run. The journal does not have it in this form."""
    run = record.run()
    run.publisher, run.confirmed, run.headers = of.publisher, of.confirmed or of.journaled, of.headers
    return run
