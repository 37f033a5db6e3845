"""Forms of records that the broker makes itself: projections, deltas, and patches that are merged."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from headway.core.base import Reason, Refused
from headway.core.log import State
from headway.core.message import (
    DELTA,
    EVENT,
    MERGE,
    TOLD_KEY,
    BadPatch,
    KeyExtractor,
    Properties,
    Record,
    Run,
    difference,
    merged,
    says_delete,
)

# -- merging -----------------------------------------------------------------------------------------------------------
#
# Merging: records that are patches are merged onto the latest records of their keys, before they are published.
#
# From then on each is a whole record: the journal, states, queues and subscribers have no other. A patch whose key has
# no record in the state is refused. It may be that the key was evicted, or that the topic is not recorded and the
# broker was started anew: a record of the patch alone would lack fields, and nobody would know.


SLICE_RECORDS = 64
SLICE_BYTES = 256 * 1024
"""Patches that are merged in one step, and the bytes of the records that they are merged onto."""


class Merged(NamedTuple):
    """``run`` has whole records; None: all are refused. ``looked_bytes``: the bytes that were read and written."""

    run: Run | None
    dropped: int
    refused: Refused | None
    looked_bytes: int


def merge_slice(state: State, run: Run) -> int:
    """Returns how many patches of a run are merged in one step."""
    most, size = min(SLICE_RECORDS, len(run)), 0
    for index in range(most):
        payload = run.payload(index)
        before = state.current(run.topic, state.key.find(run.topic, run.properties, payload))
        size += len(payload) + (0 if before is None else len(before.payload))
        if size > SLICE_BYTES:
            return max(1, index)
    return most


def merged_run(state: State, run: Run, now: float) -> Merged:
    """Merges the patches of a run, in their order, onto the records of the state."""
    bodies: list[int] = []
    ends: list[int] = []
    data = bytearray()
    latest: dict[str | None, bytes] = {}
    refused, looked_bytes = None, 0
    for index in range(len(run)):
        try:
            key, payload, base_bytes = _merge(state, run, index, latest, now)
        except (BadPatch, Refused) as error:
            refused = error if isinstance(error, Refused) else Refused(Reason.MALFORMED, str(error))
            looked_bytes += run.ends[index] - run.bodies[index]
            continue
        latest[key] = payload
        looked_bytes += base_bytes + len(payload)
        bodies.append(len(data))
        data += payload
        ends.append(len(data))
    if not ends:
        return Merged(None, len(run), refused, looked_bytes)
    whole = Run(
        run.topic, bytes(data), ends, bodies, None, run.qos, run.retain, without_merge(run.properties), run.expires_s,
        run.exchange, run.headers,
    )  # fmt: skip
    whole.publisher, whole.confirmed = run.publisher, run.confirmed
    whole.origin, whole.receipt = run.origin, run.receipt
    return Merged(whole, len(run) - len(ends), refused, looked_bytes)


def _merge(
    state: State, run: Run, index: int, latest: dict[str | None, bytes], now: float
) -> tuple[str | None, bytes, int]:
    """Returns the key, the merged payload, and the bytes that it was merged onto. Raises BadPatch, Refused."""
    if says_delete(run.properties):
        raise BadPatch("a record is either a patch (merge) or a delete")
    patch = run.payload(index)
    if not patch:
        raise BadPatch("a patch without payload: to delete the key, leave out the property merge")
    key = state.key.find(run.topic, run.properties, patch)
    if key is None:
        raise BadPatch(f"the patch has no key ({state.key.text})")
    base = latest.get(key)
    if base is None:
        base = _known(state, state.current(run.topic, key), key, now)
    return key, merged(base, patch), len(base)


def _known(state: State, record: Record | None, key: str, now: float) -> bytes:
    """Returns the payload that a patch is merged onto. Raises Refused."""
    if record is None or record.expires_s <= now:
        # Not how many: a publisher need not be one who may read the state.
        why = "; keys were evicted" if state.evicted_records else ""
        text = f"there is no record of the key {key[:60]!a} that a patch could be merged onto{why}"
        raise Refused(Reason.NOT_FOUND, f"{text}: publish a whole record")
    return record.payload


def without_merge(properties: Properties) -> Properties:
    return msgspec.structs.replace(properties, user=tuple(pair for pair in properties.user if pair[0] != MERGE))


# -- shape -------------------------------------------------------------------------------------------------------------
#
# Shape: the form in which the subscribers of a lane get records, if it is not the publisher's.
#
# - **Projection** (option ``select``): some fields of each record. The payload may lack the key of its record, so the
# key
#   is told with the user property ``headway-key``.
# - **Delta** (option ``delta``): a record has only what has changed since the record of its key before, as a JSON merge
#   patch, and is marked so. All other records are whole, and without a mark.
#
# A record is put into shape once for all subscribers of a lane, when it is published. Records that come from elsewhere
# (a state, retained or recorded records) are whole, and put into shape when they are written.
#
# A delta is only for who has the record before. For all readers of a lane to have it, the lane itself must have told
# it, behind its *floor*: the last sequence at which a reader came into the lane, or has left something out. So the
# first record of each key behind the floor is whole, for all readers. A reader that leaves something out while deltas
# wait for it in the lane does not read these: it gets the latest records of the state, and goes on at the end of the
# lane (``Subscription.astray``).


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
