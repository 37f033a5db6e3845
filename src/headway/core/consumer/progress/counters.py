"""Counters: the records that one consumer was sent, and those that it was not.

A record that goes from the consumer's lane to its outlet as it is touches no counter: the cursor's distance from its
start tells the number of these records. The counters hold only the difference to that distance. So they change only
when a record takes another way, or is left out:

- *written*: records that were encoded for this consumer alone, from a backfill or from its queue;
- *passed over*: records that the cursor has passed in the lane and that were not sent from there;
- *gaps*: records that the consumer never gets, by reason;
- *rewound*: bytes of a record that were sent to a connection that broke in the middle of it.

``telemetry/accounts.py`` adds these up for each consumer; the registry does so for the whole broker.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from headway.core.base import Reason
    from headway.core.log import Cursor

NO_GAPS: Final[Counter[Reason]] = Counter()
"""Shared by all consumers without a gap, because a Counter takes 80 bytes. It is never written to."""


class Volume(NamedTuple):
    """An amount of records, and their bytes."""

    records: int
    bytes: int


NO_VOLUME: Final = Volume(0, 0)


class Counters:
    """The counters of one consumer. They only grow."""

    __slots__ = (
        "gap_records", "handed_bytes", "passed_over_bytes", "passed_over_records", "rewound_bytes", "skipped_bytes",
        "start_number", "start_position", "totalled_bytes", "totalled_gaps", "totalled_records", "written_bytes",
        "written_records",
    )  # fmt: skip

    def __init__(self, number: int, position: int) -> None:
        self.start_number, self.start_position = number, position
        """The position in the lane at which the consumer began. For a member of a queue these are the records and bytes
        that the queue had handed out by then."""
        self.written_records = 0
        self.written_bytes = 0
        self.passed_over_records = 0
        self.passed_over_bytes = 0
        self.skipped_bytes = 0
        """The bytes of the lane that the consumer never gets."""
        self.rewound_bytes = 0
        self.handed_bytes = 0
        """The bytes, in the queue's lane, of the records that the queue has handed to the consumer."""
        self.gap_records = NO_GAPS
        self.totalled_gaps = NO_GAPS
        """Gaps that are already part of the broker's totals."""
        self.totalled_records = self.totalled_bytes = 0
        """Records and bytes sent that are already part of the broker's totals."""

    def start_at(self, number: int, position: int) -> None:
        """Counts from here on; see ``start_number``."""
        self.start_number, self.start_position = number, position

    # -- counting ---------------------------------------------------------------------------------------------------

    def write(self, records: int, size: int) -> None:
        self.written_records += records
        self.written_bytes += size

    def pass_over(self, records: int, size: int) -> None:
        self.passed_over_records += records
        self.passed_over_bytes += size

    def skip(self, records: int, size: int) -> None:
        """Counts records that the cursor passes and that the consumer never gets."""
        self.pass_over(records, size)
        self.skipped_bytes += size

    def gap(self, records: int, reason: Reason) -> None:
        if self.gap_records is NO_GAPS:
            self.gap_records = Counter()
        self.gap_records[reason] += records

    # -- sums -------------------------------------------------------------------------------------------------------

    @property
    def written(self) -> Volume:
        return Volume(self.written_records, self.written_bytes)

    @property
    def skipped(self) -> Volume:
        return Volume(self.gap_records.total(), self.skipped_bytes)

    @property
    def taken_from_queue(self) -> Volume:
        """The records that its queue has handed to the consumer."""
        return Volume(self.written_records, self.handed_bytes)

    def sent(self, cursor: Cursor) -> Volume:
        """Returns the volume sent to a consumer that reads its lane with this cursor."""
        return Volume(
            cursor.number - self.start_number - self.passed_over_records + self.written_records,
            cursor.position - self.start_position - self.passed_over_bytes + self.written_bytes + self.rewound_bytes,
        )

    def given_to_others(self, handed_records: int, handed_bytes: int) -> Volume:
        """Returns the volume that the queue gave to other members since this one joined. The arguments are the queue's
        totals."""
        return Volume(
            handed_records - self.start_number - self.written_records,
            handed_bytes - self.start_position - self.handed_bytes,
        )

    def add_to_total(self, sent: Volume, gap_records: Counter[Reason]) -> Volume:
        """Adds the gaps since the last call to the broker's ``gap_records``. Returns the part of ``sent`` since the
        last call."""
        new = Volume(sent.records - self.totalled_records, sent.bytes - self.totalled_bytes)
        self.totalled_records, self.totalled_bytes = sent
        if self.gap_records is not NO_GAPS and self.gap_records != self.totalled_gaps:
            gap_records.update(self.gap_records)
            gap_records.subtract(self.totalled_gaps)
            self.totalled_gaps = self.gap_records.copy()
        return new
