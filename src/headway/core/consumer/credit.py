"""Credit: how many deliveries a client permits to be in flight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# -- window ------------------------------------------------------------------------------------------------------------
#
# A window is a limit on how many deliveries may be in flight at once.
#
# Credit is counted where the client gives it. MQTT's Receive Maximum is one window for the whole session. AMQP has one
# window for each consumer and one for all consumers of a channel; the broker adds one for all channels of a session. A
# delivery needs room in all windows that apply to it.


MQTT_ID_MAX = 65_535
"""The largest number of deliveries in flight to a client of MQTT, whose ids have two bytes."""
NO_LIMIT = 2**62


class Window:
    """A limit on how many deliveries may be in flight at once."""

    __slots__ = ("exhausted_since_s", "limit", "timeouts", "used")
    grants = False
    """Whether its client says how many deliveries follow, and not how many may be unsettled."""
    counts = False
    """Whether its client says how many records it has done with, and not which."""

    record_bytes_max = NO_LIMIT
    """The largest record that the consumer takes, in the form in which it is sent."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.timeouts = 0
        """The deliveries in ``used`` whose acknowledgement took too long. They were requeued, and this consumer gets no
        more records until it settles them."""
        self.exhausted_since_s: float | None = None
        """The time since which records wait because the window has no room."""

    @property
    def left(self) -> int:
        return self.limit - self.used

    def sent(self, records: int) -> None:
        """Notes how many records were sent in all, if it counts them."""

    def settle_some(self, records: int) -> int:
        """Settles so many of the oldest records in flight, if it counts them. Returns how many."""
        return 0

    def spend(self, cut: object, count: int) -> None:
        """Notes that the first ``count`` deliveries of a cut were sent, settled or not."""


# -- counted window ----------------------------------------------------------------------------------------------------
#
# A counted window is one whose client says how many records it has done with, and not which.


class CountedWindow(Window):
    """The window of a consumer of topics that says how many records it has done with, and not which. What it was sent
    (``Reader.delivered``) minus these is in flight, so nothing is done per record."""

    __slots__ = ("settled",)
    counts = True

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.settled = 0

    def sent(self, records: int) -> None:
        self.used = records - self.settled

    def settle_some(self, records: int) -> int:
        done = min(records, self.used)
        self.settled += done
        self.used -= done
        return done


# -- grant -------------------------------------------------------------------------------------------------------------
#
# A grant is a number of further deliveries that a client permits, as in AMQP 1.0.


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
