"""The form in which AMQP's queues keep their records (lane.py). It is the same for all consumers: no ids, no holes.

An envelope writes the deliveries for one consumer from it (envelope.py).
"""

from __future__ import annotations

from itertools import accumulate, repeat
from operator import add, sub

import msgspec

from headway.core.message import EncodedRun, Gap, Record, Run
from headway.wire.amqp.lane import Leads, properties_of, read_message
from headway.wire.columns import equal_pieces


class AmqpDialect(msgspec.Struct, frozen=True):
    """All instances are equal. No run arrives in this form, so ``form`` is None."""

    @property
    def form(self) -> object:
        return None

    @property
    def id_bytes(self) -> int:
        return 0

    def encode(self, run: Run, first_sequence: int) -> EncodedRun:
        """Makes one lead per size of body. If all bodies have one size, there is no work per record."""
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
        """The record with all properties of its publisher except its lifetime."""
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
        """The record as it is in a lane, without the parts of a delivery."""
        return self.encode(record.run(), record.sequence).data

    def with_gap(self, frame: bytes, gap: Gap) -> bytes | None:
        return None

    def redelivered(self, frame: bytes) -> bytes:
        return frame
