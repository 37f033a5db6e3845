"""Dialects' common part: a dialect (core/message/record.py) derives from it, and says where it differs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from operator import sub

import msgspec

from headway.core.message import (
    DELETE,
    DELTA,
    EVENT,
    OUT_OF_FOCUS,
    TOLD,
    EncodedRun,
    Gap,
    Properties,
    Record,
    Run,
    says_delete,
)
from headway.wire.columns import equal_pieces


class PlainDialect(msgspec.Struct, frozen=True):
    """Frames that are written anew from each run, whole, and the same for every consumer."""

    @property
    def form(self) -> object:
        """No run has come in these bytes."""
        return None

    @property
    def id_bytes(self) -> int:
        """There is no delivery id in a frame."""
        return 0

    @property
    def bare(self) -> bool:
        return False

    @property
    def reads_own(self) -> bool:
        """No run is written with properties that differ between its records."""
        return False

    def redelivered(self, frame: bytes) -> bytes:
        """A record looks the same when it comes again."""
        return frame


class BareDialect(PlainDialect, frozen=True):
    """Records without what is each consumer's own: an envelope puts it around them."""

    @property
    def bare(self) -> bool:
        return True

    def encode(self, run: Run, first_sequence: int) -> EncodedRun:
        raise NotImplementedError

    def encode_record(
        self, record: Record, delivery_id: int, *, now: float, retain: bool = False, redelivered: bool = False,
        gap: Gap | None = None,
    ) -> bytes:  # fmt: skip
        """Returns the record as it is in a lane, without the parts of a delivery."""
        frame = self.encode(record.run(), record.sequence).data
        return frame if gap is None else self.with_gap(frame, gap)

    def with_gap(self, frame: bytes, gap: Gap) -> bytes:
        raise NotImplementedError


def event_of(properties: Properties) -> str:
    """Returns what a record is that is no ordinary one: a delete, a delta, or out of focus; empty: it is one."""
    if says_delete(properties):
        return DELETE
    said = properties.user_value(EVENT) if properties.user else None
    return said if said in (DELTA, OUT_OF_FOCUS) else ""


def mark_of(said: Properties) -> tuple[str, dict[str, str | int]] | None:
    """Returns the name of a mark of the broker's own, and what it tells; None: a record that says this is no mark."""
    name = said.user_value(EVENT)
    if not name:
        return None
    return name, {key.removeprefix(TOLD): int(value) if value.isdecimal() else value for key, value in said.user[1:]}


def encode_by_size(run: Run, lead_of: Callable[[int], bytes]) -> EncodedRun:
    """Puts a lead before each payload, which depends on no more than its size: it is made once per size. If all
    payloads have one size, there is no work per record."""
    data, ends, bodies = run.data, run.ends, run.bodies
    count, size = len(ends), ends[0] - bodies[0]
    if isinstance(ends, range) and isinstance(bodies, range):
        pieces, lead = equal_pieces(data, bodies[0], size, ends.step, count), lead_of(size)
        whole = len(lead) + size
        return EncodedRun(lead.join((b"", *pieces)), range(whole, count * whole + 1, whole))
    sizes = list(map(sub, ends, bodies))
    leads = {size: lead_of(size) for size in set(sizes)}
    wholes = {size: len(lead) + size for size, lead in leads.items()}
    parts = [b""] * (2 * count)
    parts[::2] = map(leads.__getitem__, sizes)
    parts[1::2] = [data[body:end] for body, end in zip(bodies, ends, strict=True)]
    return EncodedRun(b"".join(parts), list(accumulate(map(wholes.__getitem__, sizes))))


def gap_facts(prefix: str, gap: Gap) -> dict[str, object]:
    """Returns what a consumer is told of skipped records, by names that begin so."""
    return {
        f"{prefix}gap-records": gap.records, f"{prefix}gap-reason": str(gap.reason),
        f"{prefix}gap-first": gap.first_sequence, f"{prefix}gap-last": gap.last_sequence,
    }  # fmt: skip
