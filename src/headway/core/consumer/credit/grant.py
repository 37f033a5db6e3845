"""A grant is a number of further deliveries that a client permits, as in AMQP 1.0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headway.core.consumer.credit.window import NO_LIMIT, Window


class Grant(Window):
    """The credit of a consumer whose client says how many deliveries may follow, whether it settles those that it has
    or not (link credit of AMQP 1.0). ``used`` counts its unsettled deliveries, as in any window."""

    __slots__ = ("_on_sent", "credit", "record_bytes_max", "spent")
    grants = True

    def __init__(self, on_sent: Callable[[Any, int], None], record_bytes_max: int = NO_LIMIT) -> None:
        """``on_sent``: is told of the deliveries of a cut that were sent."""
        super().__init__(0)
        self.record_bytes_max = record_bytes_max
        self._on_sent = on_sent
        self.credit = 0
        self.spent = 0
        """The deliveries that were sent since the consumer began, and the credit that was used up without any."""

    @property
    def left(self) -> int:
        return self.credit

    def spend(self, cut: object, count: int) -> None:
        self.credit -= count
        self.spent += count
        self._on_sent(cut, count)

    def use_up(self) -> None:
        """Uses the credit up without a delivery."""
        self.spent += max(0, self.credit)
        self.credit = 0

    def give(self, credit: int) -> None:
        """The client permits so many further deliveries. ``limit`` becomes the most that it has permitted at once."""
        self.credit = credit
        self.limit = max(self.limit, credit)
        if credit > 0:
            self.exhausted_since_s = None
