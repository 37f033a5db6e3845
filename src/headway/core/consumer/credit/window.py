"""A window is a limit on how many deliveries may be in flight at once.

Credit is counted where the client gives it. MQTT's Receive Maximum is one window for the whole session. AMQP has one
window for each consumer and one for all consumers of a channel; the broker adds one for all channels of a session. A
delivery needs room in all windows that apply to it.
"""

from __future__ import annotations

MQTT_ID_MAX = 65_535
"""The largest number of deliveries in flight to a client of MQTT, whose ids have two bytes."""
NO_LIMIT = 2**62


class Window:
    """A limit on how many deliveries may be in flight at once."""

    __slots__ = ("exhausted_since_s", "limit", "timeouts", "used")
    grants = False
    """Whether its client says how many deliveries follow, and not how many may be unsettled (grant.py)."""
    counts = False
    """Whether its client says how many records it has done with, and not which (counted_window.py)."""

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
