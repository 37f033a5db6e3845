"""An allowance: what one user's clients take up together, and what they may.

Rules:
- A connection or a subscription beyond the limit is refused. Those that exist when a limit is lowered stay.
- Publishing beyond the limit is not refused: the publisher waits. ``spend`` counts what was published in the time that
  it is worth at the permitted rate, so a second that was not used may be used later, and no more than one.
- Nothing here is asked per record: ``spend`` is called once for all that one read has brought.
"""

from __future__ import annotations

from collections import Counter

from headway.core.allowance.user_limits import UserLimits
from headway.core.base import Reason, Refused, Timer, format_count, format_size

BURST_S = 1.0
CONNECTIONS, SUBSCRIPTIONS, PUBLISH_RATE, POOL_SHARE = "connections", "subscriptions", "publish_rate", "pool_share"


class Allowance:
    """One user's."""

    __slots__ = (
        "_counts", "_paid_s", "connections", "disk_bytes", "gating_bytes", "limits", "subscriptions", "timer", "user",
    )  # fmt: skip

    def __init__(self, user: str, limits: UserLimits, counts: Counter[str]) -> None:
        self.user = user
        self.limits = limits
        self.connections = 0
        self.subscriptions = 0
        self.gating_bytes = 0
        """Bytes of lanes that are held for this user's clients."""
        self.disk_bytes = 0
        """The part of ``gating_bytes`` that is on disk."""
        self.timer: Timer | None = None
        """The timer that lets waiting publishers go on."""
        self._paid_s = 0.0
        """The time until which all that was published is paid for."""
        self._counts = counts

    @property
    def unused(self) -> bool:
        """Whether no client of this user is there."""
        return not self.connections and not self.subscriptions and not self.gating_bytes

    def take(self, limits: UserLimits) -> None:
        """Takes limits. What was published under others is not held against the user."""
        if limits != self.limits:
            self.limits, self._paid_s = limits, 0.0

    def check_connection(self, *, leaving: int) -> None:
        """Raises :class:`Refused` if there is no room for one more connection; ``leaving`` give way to it."""
        most, here = self.limits.connections, self.connections - leaving
        if most is not None and here >= most:
            raise self._refusal(CONNECTIONS, here, most, "close one")

    def check_subscription(self) -> None:
        """Raises :class:`Refused` if there is no room for one more subscription."""
        most = self.limits.subscriptions
        if most is not None and self.subscriptions >= most:
            raise self._refusal(SUBSCRIPTIONS, self.subscriptions, most, "end one")

    def _refusal(self, what: str, here: int, most: int, advice: str) -> Refused:
        self._counts[what] += 1
        text = (f"user {self.user} has {format_count(here)} {what}, and {self.limits.name}.{what} permits "
                f"{format_count(most)}: {advice}, or have that limit raised")  # fmt: skip
        return Refused(Reason.USER_LIMIT, text)

    # -- publishing ---------------------------------------------------------------------------------------------------

    def spend(self, records: int, size: int, now: float) -> None:
        """Counts what was published."""
        limits = self.limits
        cost_s = 0.0
        if limits.publish_rate is not None:
            cost_s = records / limits.publish_rate
        if limits.publish_bytes is not None:
            cost_s = max(cost_s, size / limits.publish_bytes)
        self._paid_s = max(self._paid_s, now - BURST_S) + cost_s

    def wait_s(self, now: float) -> float:
        """Returns for how long publishers have to wait; 0 or less: not at all."""
        return self._paid_s - now if self.limits.of_rates else 0.0

    def waits(self) -> None:
        """Counts a publisher that has to wait."""
        self._counts[PUBLISH_RATE] += 1

    @property
    def wait_reason(self) -> str:
        """Why publishers wait, in words."""
        limits, rates = self.limits, []
        if limits.publish_rate is not None:
            rates.append(f"{format_count(limits.publish_rate)} records")
        if limits.publish_bytes is not None:
            rates.append(format_size(limits.publish_bytes))
        return f"user {self.user} may publish {' and '.join(rates)} a second ({limits.name})"

    # -- waiting records ----------------------------------------------------------------------------------------------

    def hold(self, gating_bytes: int, disk_bytes: int) -> None:
        """Changes the bytes that are held for this user's clients."""
        self.gating_bytes += gating_bytes
        self.disk_bytes += disk_bytes

    def evicted(self) -> None:
        """Counts a consumer that was evicted for what this user's clients hold."""
        self._counts[POOL_SHARE] += 1
