"""A shared reader reads lanes with one position for many consumers. A queue is one (queue.py). The rooms below
``queue`` know queues only by these protocols.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from headway.core.base import Reason
from headway.core.consumer.request import QueueTerms
from headway.core.log import Cursor, DurablePosition
from headway.core.message import Run

if TYPE_CHECKING:
    from headway.core.consumer.delivery import Delivery
    from headway.core.consumer.feed import Feed
    from headway.core.consumer.session import Session
    from headway.core.consumer.subscription import Subscription


class Waiting(Protocol):
    """The records that a shared reader has still to hand out, and how much it has handed out."""

    @property
    def handed_records(self) -> int: ...
    @property
    def handed_bytes(self) -> int: ...
    @property
    def reading(self) -> Cursor:
        """The cursor that reads what comes next."""

    @property
    def lag_bytes(self) -> int: ...
    @property
    def lag_records(self) -> int: ...
    @property
    def has_more(self) -> bool: ...
    def oldest_time(self) -> float:
        """Returns the time when the next record was published; None if there is none."""


class SharedReader(Protocol):
    """Hands out each record that it reads to one of its members."""

    name: str
    terms: QueueTerms
    ends_with_members: bool
    """The reader is the group of an MQTT shared subscription, which ends with its last member."""
    filters: tuple[str, ...]
    """The topic filters by which its policy is chosen."""
    durable_position: DurablePosition
    owner: Session | None
    """The session that has the reader for itself (an exclusive queue)."""
    feed: Feed

    @property
    def members(self) -> Mapping[Subscription, None]: ...
    @property
    def backlog(self) -> Waiting: ...
    @property
    def empties(self) -> int:
        """How often members have taken all that waited."""
    @property
    def gates(self) -> bool:
        """Tells whether all of its members are gates, so that publishers are held back."""
    def dispatch(self, now: float) -> None:
        """Hands out records to members with room and credit."""
    def look_again(self, member: Subscription) -> None:
        """Offers records to a member again: it may have room or credit now."""
    def packet_limit_changed(self) -> None:
        """Notes that the client of a member accepts other sizes of packets than before."""
    def lose(self, delivery: Delivery, reason: Reason, now: float) -> None:
        """Notes that a record which its member had in flight cannot be sent again. One that is too large for the client
        goes to another member, if it may; others are lost, and noted in the member's gap."""
    def count_slow(self, member: Subscription, change: int) -> None:
        """Counts a member that is marked slow (1) or no longer is (-1)."""
    def takes_at_once(self, now: float) -> bool:
        """Tells whether one more record could go to a member at once."""
    def room_for(self, size: int, count: int, now: float) -> int:
        """Returns how many records of so many bytes it accepts, if ``count`` are to come. A full queue refuses the
        others."""
    def refuse(self, run: Run, accepted: int, first: int, now: float) -> None:
        """Refuses the records of the run behind the first ``accepted``."""
