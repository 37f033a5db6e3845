"""The form in which AMQP's queues keep their records (lane.py). Nothing in it is any consumer's own: no ids, no holes.

How a consumer is written to from it is the affair of its envelope (envelope.py).
"""

from __future__ import annotations

from itertools import accumulate, repeat
from operator import add, sub

import msgspec

from headway.core.message import EncodedRun, Gap, Record, Run
from headway.wire.amqp.lane import Leads, properties_of, read_message
from headway.wire.columns import equal_pieces


class AmqpDialect(msgspec.Struct, frozen=True):
    """All are equal. No run comes in this form, so ``form`` is that of none."""

    @property
    def form(self) -> object:
        return None

    @property
    def id_bytes(self) -> int:
        return 0

    def encode(self, run: Run, first_sequence: int) -> EncodedRun:
        """A lead for each size of body; where there is but one, nothing is done for each record here."""
        leads = Leads(run.exchange, run.topic, properties_of(run.properties, run.qos))
        data, ends, bodies = run.data, run.ends, run.bodies
        count, size = len(ends), ends[0] - bodies[0]
        if isinstance(ends, range) and isinstance(bodies, range):
            pieces = equal_pieces(data, bodies[0], size, ends.step, count)
            whole = leads.size + size
            return EncodedRun(leads.lead(size).join((b"", *pieces)), range(whole, count * whole + 1, whole))
        sizes = list(map(sub, ends, bodies))
        by_size = {size: leads.lead(size) for size in set(sizes)}
        parts = [b""] * (2 * count)
        parts[::2] = map(by_size.__getitem__, sizes)
        parts[1::2] = [data[body:end] for body, end in zip(bodies, ends, strict=True)]
        return EncodedRun(b"".join(parts), list(accumulate(map(add, sizes, repeat(leads.size)))))

    def decode(self, frame: bytes) -> Record:
        """With all properties a publisher gave it, lifetime aside."""
        return read_message(frame).record()

    def encode_record(
        self,
        record: Record,
        delivery_id: int,
        *,
        now: float,
        retain: bool = False,
        redelivered: bool = False,
        gap: Gap | None = None,
    ) -> bytes:
        """The record as it stands in a lane; what is a delivery's own is not part of it."""
        return self.encode(record.run(), record.sequence).data

    def with_gap(self, frame: bytes, gap: Gap) -> bytes | None:
        return None

    def redelivered(self, frame: bytes) -> bytes:
        return frame
