"""Shared readers: who reads lanes with one position for many consumers. A queue is one (queue.py); below it nobody
needs to know more of queues than this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from headway.core.consumer.options import QueueTerms
from headway.core.log import Kept
from headway.core.message import Run

if TYPE_CHECKING:
    from headway.core.consumer.feed import Feed
    from headway.core.consumer.session import Session
    from headway.core.consumer.subscription import Subscription


class Waiting(Protocol):
    """What a reader has still to hand out, and how much it has handed out."""

    handed_records: int
    handed_bytes: int

    @property
    def lag_bytes(self) -> int: ...
    @property
    def lag_records(self) -> int: ...
    @property
    def has_more(self) -> bool: ...
    def oldest_time(self) -> float | None:
        """When the next of it was published; None: there is nothing."""


class SharedReader(Protocol):
    """It hands out what it reads to its members, each record to one of them."""

    name: str
    terms: QueueTerms
    ends_with_members: bool
    """It is the group of a shared subscription."""
    filters: tuple[str, ...]
    """The names it goes by for policies."""
    kept: Kept | None
    owner: Session | None
    """Whose it is alone."""
    feed: Feed

    @property
    def members(self) -> Mapping[Subscription, None]: ...
    @property
    def backlog(self) -> Waiting: ...
    @property
    def gates(self) -> bool:
        """All of its members would hold back publishers."""
    def dispatch(self, now: float) -> None:
        """Hand out what members have room and credit for."""
    def takes_at_once(self, now: float) -> bool:
        """One more record would not have to wait."""
    def room_for(self, run: Run, now: float) -> int:
        """How many records of the run it takes, where it refuses what is too much."""
    def refuse(self, run: Run, accepted: int, first: int, now: float) -> None:
        """It has no room for the records of the run behind so many of them."""
