"""Deliveries: records that were sent and are not settled yet, and the ids of each consumer's."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from headway.core.log import NO_PROGRESS, Chunk, Cursor, OutOfOrderProgress
from headway.core.message import Record

if TYPE_CHECKING:
    from headway.core.consumer.subscription import Subscription

KNOWN_SPARE = 64
"""The number of ids that may be noted beyond twice as many as are in flight."""


class Delivery(Struct, eq=False):
    """A record that was sent and is not settled yet."""

    subscription: Subscription
    sent_s: float
    cursor: Cursor | OutOfOrderProgress = NO_PROGRESS
    """Is told when it is settled: the cursor of its lane, or the progress of the backfill that it is from."""
    chunk: Chunk | None = None
    """The chunk that has it, at ``index``; None: it is in no lane, or no longer."""
    index: int = 0
    number: int = 0
    """The number by which its cursor knows it; its sequence, if it is from a backfill."""
    released: bool = False
    """The client has it, and only the second half of the exactly-once handshake is missing."""
    patience_s: float = 0.0
    """For how long the message says that its job may take; 0: it does not say."""
    returns: int = 0
    """How often the record had been requeued before this delivery."""
    record: Record | None = None
    """The record, if it was not copied from a lane in the subscription's own dialect."""

    @property
    def size(self) -> int:
        """The bytes of the record; 0 if it is gone."""
        if self.record is not None:
            return self.record.size
        return 0 if self.chunk is None else self.chunk.size_of(self.index)

    def leave_lane(self) -> None:
        """Lets go of the record's place, which nobody is told of any more when it is settled."""
        self.cursor, self.chunk, self.number = NO_PROGRESS, None, 0


class Row(Struct, eq=False):
    """Deliveries of neighbours of one chunk that were sent together, under consecutive ids. They are settled from the
    first on; otherwise each becomes a :class:`Delivery`."""

    first_id: int
    count: int
    subscription: Subscription
    sent_s: float
    cursor: Cursor
    chunk: Chunk
    index: int
    number: int
    """Where the first one's record is: its index in the chunk, and its number."""
    released: bool = False

    def in_order(self, delivery_ids: Sequence[int], at: int) -> int:
        """Returns how many deliveries of this row, from its first on, the ids from ``at`` on name in order."""
        if delivery_ids[at] != self.first_id:
            return 0
        ids = tuple(delivery_ids[at : at + self.count])
        if ids == tuple(range(self.first_id, self.first_id + len(ids))):
            return len(ids)
        return next(n for n, one in enumerate(ids) if one != self.first_id + n)

    def rest(self, count: int) -> Row:
        """Returns a row of those behind the first ``count``."""
        rest = replace(self)
        rest.drop(count)
        return rest

    def deliveries(self) -> list[Delivery]:
        return [self.delivery(at) for at in range(self.count)]

    def delivery(self, at: int) -> Delivery:
        return Delivery(self.subscription, self.sent_s, self.cursor, self.chunk, self.index + at, self.number + at,
                        self.released)  # fmt: skip

    def drop(self, count: int) -> None:
        """Drops the first ones, which are settled."""
        self.first_id += count
        self.index += count
        self.number += count
        self.count -= count


class DeliveriesByConsumer:
    """The ids of a channel's deliveries in flight, by consumer.

    A channel knows its deliveries by id alone, because that is all that sending and settling need. A search through all
    of them for each of its consumers would be quadratic. So the ids are noted by consumer when somebody asks for those
    of one, each id once. Ids of deliveries that were settled meanwhile are forgotten when their consumer is asked for,
    or all at once when they are most of what is noted. Only for channels whose ids never begin again."""

    __slots__ = ("_ids", "_upto", "known")

    def __init__(self) -> None:
        self.known = 0
        """The number of ids that are noted."""
        self._ids: dict[int, list[int]] = {}
        """By the consumer's ``id``, because a reference to it would make a cycle."""
        self._upto = 0

    def of(self, consumer: Subscription, in_flight: OrderedDict[int, Delivery]) -> list[int]:
        """Returns the ids of the consumer's deliveries, the oldest first."""
        self._note_new(in_flight)
        noted = self._ids.pop(id(consumer), [])
        self.known -= len(noted)
        left = [known for known in noted if (one := in_flight.get(known)) is not None and one.subscription is consumer]
        if left:
            self._ids[id(consumer)] = left
            self.known += len(left)
        return left

    def _note_new(self, in_flight: OrderedDict[int, Delivery]) -> None:
        if self.known > 2 * len(in_flight) + KNOWN_SPARE:
            self._ids.clear()
            self.known = self._upto = 0
        new = list(takewhile(self._upto.__lt__, reversed(in_flight)))
        for delivery_id in reversed(new):
            self._ids.setdefault(id(in_flight[delivery_id].subscription), []).append(delivery_id)
        self.known += len(new)
        if new:
            self._upto = new[0]
