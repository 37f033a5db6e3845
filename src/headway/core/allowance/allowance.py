"""An allowance: what one user's clients take up together, and what they may.

Rules:
- A connection or a subscription beyond the limit is refused. Those that exist when a limit is lowered stay.
- Publishing beyond the limit is not refused: the publisher waits. ``spend`` counts what was published in the time that
  it is worth at the permitted rate, so a second that was not used may be used later, and no more than one.
- Bytes in flight beyond the limit are not sent: their records wait. Sessions that wait for room have turns, so that
  those who settle at once do not take all the room that comes free. The last record may go beyond the limit.
- Publishing is not counted per record: ``spend`` is called once for all that one read has brought.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from math import inf
from typing import Final

from headway.core.allowance.user_limits import UserLimits
from headway.core.base import NO_TIMER, Reason, Refused, format_count, format_size

BURST_S = 1.0
TURN_BYTES = 64 * 1024
"""A session that has its turn is expected to take so much."""
TURNS_AT_ONCE = 16
CONNECTIONS, SUBSCRIPTIONS, PUBLISH_RATE, POOL_SHARE = "connections", "subscriptions", "publish_rate", "pool_share"
IN_FLIGHT_BYTES = "in_flight_bytes"


class Due:
    """The sessions that may go on, of all users: those that wait for room for more bytes in flight."""

    __slots__ = ("freed", "with_room")

    def __init__(self) -> None:
        self.with_room: dict[Allowance, None] = {}
        """Allowances with room, and sessions that wait for it."""
        self.freed: dict[int, None] = {}
        """Sessions that waited, and are counted elsewhere now."""

    def __bool__(self) -> bool:
        return bool(self.with_room or self.freed)


class Allowance:
    """One user's."""

    __slots__ = (
        "_counts", "_due", "_paid_s", "_turns", "connections", "disk_bytes", "gating_bytes", "in_flight_bytes",
        "limits", "subscriptions", "timer", "user", "waiting",
    )  # fmt: skip

    def __init__(self, user: str, limits: UserLimits, counts: Counter[str], due: Due) -> None:
        self.user = user
        self.limits = limits
        self.connections = 0
        self.subscriptions = 0
        self.gating_bytes = 0
        """Bytes of lanes that are held for this user's clients."""
        self.disk_bytes = 0
        """The part of ``gating_bytes`` that is on disk."""
        self.timer = NO_TIMER
        """The timer that lets waiting publishers go on."""
        self._paid_s = 0.0
        """The time until which all that was published is paid for."""
        self.in_flight_bytes = 0
        """Bytes that were sent to this user's clients and are not acknowledged."""
        self.waiting: dict[int, None] = {}
        """Numbers of sessions that wait for room for more of them, in the order of their turns."""
        self._turns: dict[int, None] = {}
        """Numbers of sessions that have their turn: others wait, and these may be sent more until there is no room."""
        self._due = due
        self._counts = counts

    @property
    def unused(self) -> bool:
        """Whether no client of this user is there."""
        return not (self.connections or self.subscriptions or self.gating_bytes or self.in_flight_bytes)

    def take(self, limits: UserLimits) -> None:
        """Takes limits. What was published under others is not held against the user."""
        if limits != self.limits:
            self.limits, self._paid_s = limits, 0.0
            self._look()

    def check_connection(self, *, leaving: int) -> None:
        """Raises :class:`Refused` if there is no room for one more connection; ``leaving`` give way to it."""
        most, here = self.limits.connections, self.connections - leaving
        if here >= most:
            raise self._refusal(CONNECTIONS, here, most, "close one")

    def check_subscription(self) -> None:
        """Raises :class:`Refused` if there is no room for one more subscription."""
        most = self.limits.subscriptions
        if self.subscriptions >= most:
            raise self._refusal(SUBSCRIPTIONS, self.subscriptions, most, "end one")

    def _refusal(self, what: str, here: int, most: float, advice: str) -> Refused:
        self._counts[what] += 1
        text = (f"user {self.user} has {format_count(here)} {what}, and {self.limits.name}.{what} permits "
                f"{format_count(most)}: {advice}, or have that limit raised")  # fmt: skip
        return Refused(Reason.USER_LIMIT, text)

    # -- publishing ---------------------------------------------------------------------------------------------------

    def spend(self, records: int, size: int, now: float) -> None:
        """Counts what was published."""
        limits = self.limits
        cost_s = max(records / limits.publish_rate, size / limits.publish_bytes)
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
        if limits.publish_rate < inf:
            rates.append(f"{format_count(limits.publish_rate)} records")
        if limits.publish_bytes < inf:
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

    # -- bytes in flight ----------------------------------------------------------------------------------------------

    @property
    def room(self) -> float:
        """The bytes in flight for which there is room yet."""
        return self.limits.in_flight_bytes - self.in_flight_bytes

    def fly(self, size: int) -> None:
        """Changes the bytes in flight."""
        self.in_flight_bytes += size
        if self.waiting:
            self._look()

    def lets_fly(self, session: int) -> bool:
        """Returns whether a session may be sent more: there is room, and it has its turn or nobody waits."""
        return self.room > 0 and (not self.waiting or session in self._turns)

    def wait(self, session: int) -> None:
        """Has a session wait for its turn."""
        self._turns.pop(session, None)
        if session not in self.waiting:
            self._counts[IN_FLIGHT_BYTES] += 1
            self.waiting[session] = None
            self._look()

    def wait_no_more(self, session: int) -> None:
        """Forgets a session whose client is away."""
        self._turns.pop(session, None)
        self.waiting.pop(session, None)

    def leave(self, session: int) -> None:
        """Forgets a session that is counted elsewhere now; if it waits, it may go on there."""
        if session in self.waiting:
            self._due.freed[session] = None
        self.wait_no_more(session)

    @property
    def flight_reason(self) -> str:
        """Why sessions wait, in words."""
        in_flight, most = format_size(self.in_flight_bytes), format_size(self.limits.in_flight_bytes)
        return (f"user {self.user} has {in_flight} in flight, and {self.limits.name}.{IN_FLIGHT_BYTES} permits "
                f"{most}")  # fmt: skip

    def next_turns(self) -> list[int]:
        """Returns the numbers of the sessions that have their turn now: as many as there is room for, and one if there
        is any."""
        room = self.room
        if room <= 0:
            return []
        found = list(islice(self.waiting, int(min(TURNS_AT_ONCE, 1 + room // TURN_BYTES))))
        for session in found:
            del self.waiting[session]
            self._turns[session] = None
        self._look()
        return found

    def _look(self) -> None:
        if self.waiting and self.room > 0:
            self._due.with_room[self] = None


UNLIMITED: Final = Allowance("", UserLimits(""), Counter(), Due())
"""That of all users without limits. It admits everything. Its counts are of no use."""
