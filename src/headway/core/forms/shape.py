"""Shape: the form in which the subscribers of a lane get records, if it is not the publisher's (option ``select``).

A record is put into shape once for all subscribers of a lane, when it is published. Records that come from elsewhere (a
state, retained or recorded records) are put into the same shape when they are written. The payload of a projection
may lack the key of its record, so the key is told with the user property ``headway-key``.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headway.core.message import TOLD_KEY, KeyExtractor, Record, Run

SHAPE_BYTES = 8192
"""The memory of a shape, whose fields have a decoder of their own, without the text of its option."""
Project = Callable[[Record], bytes]


class Shape:
    __slots__ = ("_key_of", "_project")

    def __init__(self, project: Project, key_of: KeyExtractor | None) -> None:
        self._project = project
        """Returns the payload that subscribers get for a record."""
        self._key_of = key_of
        """Finds the keys of records; None: no keyed ``[[topic]]`` covers them."""

    def whole(self, record: Record) -> Record:
        """Returns the record in the form in which it is whole. The broker's own marks, and records without payload,
        stay as they are."""
        if not record.payload or not record.sequence:
            return record
        properties = record.properties
        key = None if self._key_of is None else self._key_of.of(record)
        if key is not None:
            left = [pair for pair in properties.user if pair[0] != TOLD_KEY]
            properties = msgspec.structs.replace(properties, user=(*left, (TOLD_KEY, key)))
        return msgspec.structs.replace(record, payload=self._project(record), properties=properties)

    def part(self, run: Run, sequence: int, now: float) -> Run:
        """Returns a run of one record in the form that the lane gets."""
        record = run.record(0, sequence, now)
        shaped = self.whole(record)
        return run if shaped is record else as_run(shaped, run)


def as_run(record: Record, of: Run) -> Run:
    """Returns the record, which was made of this run's, as a run. The journal does not have it in this form."""
    run = record.run()
    run.publisher, run.confirmed, run.headers = of.publisher, of.confirmed or of.journaled, of.headers
    return run
