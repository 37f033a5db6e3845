"""Limits per user: what all clients of one user may take up together. It knows no protocol and does no I/O."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from math import inf
from typing import Final

import msgspec

from headway.core.base import NO_TIMER, Reason, Refused, format_count, format_size
from headway.core.permission import Identity

# -- user limits -------------------------------------------------------------------------------------------------------
#
# The limits of a user, as one ``[[limit]]`` of the configuration has them.


class UserLimits(msgspec.Struct, frozen=True):
    """Limits of a user, of each user of a group, or of each user. inf: there is no such limit."""

    name: str
    """How errors call it: ``limit[2]``."""
    user: str | None = None
    group: str | None = None
    """Neither: each user."""
    connections: float = inf
    subscriptions: float = inf
    publish_rate: float = inf
    """Records a second."""
    publish_bytes: float = inf
    """Bytes a second."""
    pool_share: float = inf
    in_flight_bytes: float = inf
    """Bytes that were sent and are not acknowledged."""

    @property
    def of_rates(self) -> bool:
        """Whether publishing has a limit."""
        return min(self.publish_rate, self.publish_bytes) < inf


# -- allowance ---------------------------------------------------------------------------------------------------------
#
# An allowance: what one user's clients take up together, and what they may.
#
# Rules:
# - A connection or a subscription beyond the limit is refused. Those that exist when a limit is lowered stay.
# - Publishing beyond the limit is not refused: the publisher waits. ``spend`` counts what was published in the time
# that
#   it is worth at the permitted rate, so a second that was not used may be used later, and no more than one.
# - Bytes in flight beyond the limit are not sent: their records wait. Sessions that wait for room have turns, so that
#   those who settle at once do not take all the room that comes free. The last record may go beyond the limit.
# - Publishing is not counted per record: ``spend`` is called once for all that one read has brought.


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


# -- allowances --------------------------------------------------------------------------------------------------------
#
# Allowances: those of all users. The first limit of the configuration that is for a user is its limit.


UNUSED_MAX = 1_000
"""Allowances of users who are not there are forgotten when there are so many more than at the last look."""

USERS_AT_ONCE = 64
"""So many users' sessions go on at once when there is room for more bytes in flight."""


class Allowances:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """How often a limit was reached, by limit."""
        self.due = Due()
        self._limits: tuple[UserLimits, ...] = ()
        self._groups: dict[str, frozenset[str]] = {}
        self._known: dict[str, Allowance] = {}
        self._forget_at = UNUSED_MAX

    def take(self, limits: Sequence[UserLimits], groups: Mapping[str, Sequence[str]]) -> bool:
        """Takes the limits of a configuration. Returns whether clients may have other allowances now."""
        before = self._limits, self._groups
        self._limits = tuple(limits)
        self._groups = {name: frozenset(members) for name, members in groups.items()}
        return bool(before[0] or limits) and before != (self._limits, self._groups)

    def of(self, identity: Identity) -> Allowance:
        """Returns the allowance of a user. One without limits, or whose name was not checked, has the unlimited one."""
        user = identity.user
        limits = next((one for one in self._limits if user and self._is_for(one, identity)), None)
        if limits is None:
            return UNLIMITED
        known = self._known.get(user)
        if known is None:
            if len(self._known) >= self._forget_at:
                self._known = {name: one for name, one in self._known.items() if not one.unused}
                self._forget_at = len(self._known) + UNUSED_MAX
            known = self._known[user] = Allowance(user, limits, self.counts, self.due)
        known.take(limits)
        return known

    def next_turns(self) -> list[int]:
        """Returns the numbers of sessions that may be sent more, of some users."""
        found = list(islice(self.due.freed, USERS_AT_ONCE))
        for session in found:
            del self.due.freed[session]
        for allowance in list(islice(self.due.with_room, USERS_AT_ONCE)):
            del self.due.with_room[allowance]
            found += allowance.next_turns()  # it puts itself back, at the end, if others wait
        return found

    def _is_for(self, limits: UserLimits, identity: Identity) -> bool:
        user, group = identity.user, limits.group
        if limits.user is not None:
            return limits.user == user
        return group is None or group in identity.groups or user in self._groups.get(group, ())


# -- holdings ----------------------------------------------------------------------------------------------------------
#
# Holdings: the bytes of lanes that are held for one client, which its pool and its user's allowance count.


class Holdings:
    """The bytes of lanes that are held for one client: sums over its lanes and queues, as of its last looks.

    Several subscriptions to one lane hold the same bytes, so only the one that holds the most counts.

    The sums are exact for a client with few subscriptions. They lag for a client with ten thousand, because a look
    visits only some of them."""

    __slots__ = ("_known", "allowance", "disk_bytes", "gating_bytes", "memory_bytes")

    def __init__(self) -> None:
        self._known: dict[object, tuple[object, int, int, int]] = {}
        """For each source (a lane, or a queue of the client's own) the holder that counts, and its three figures."""
        self.gating_bytes = 0
        self.disk_bytes = 0
        """The part of ``gating_bytes`` that is on disk."""
        self.memory_bytes = 0
        """The part that is in memory, and is not being written to disk."""
        self.allowance = UNLIMITED
        """Where the bytes are counted for the client's user, too."""

    def __len__(self) -> int:
        """Returns the number of lanes and queues of which something is held."""
        return len(self._known)

    def charge(self, allowance: Allowance) -> None:
        """Counts the bytes for another user."""
        self.allowance.hold(-self.gating_bytes, -self.disk_bytes)
        self.allowance = allowance
        allowance.hold(self.gating_bytes, self.disk_bytes)

    def note(self, source: object, holder: object, gating_bytes: int, disk_bytes: int, memory_bytes: int) -> None:
        """Notes the bytes that one holder holds of a source."""
        counts, gating, disk, memory = self._known.get(source, (holder, 0, 0, 0))
        if counts is not holder and gating_bytes < gating:
            return
        if gating_bytes:
            self._known[source] = holder, gating_bytes, disk_bytes, memory_bytes
        elif gating:
            del self._known[source]
        self.memory_bytes += memory_bytes - memory
        if gating_bytes != gating or disk_bytes != disk:
            self.gating_bytes += gating_bytes - gating
            self.disk_bytes += disk_bytes - disk
            self.allowance.hold(gating_bytes - gating, disk_bytes - disk)


# -- in flight bytes ---------------------------------------------------------------------------------------------------
#
# Bytes in flight: those of one session's deliveries, counted where its user has a limit of them.
#
# The size of a delivery is that of its record as it is in the lane. It is kept until the delivery is settled, because
# the record may be gone by then. Deliveries that were sent before the limit came are not counted.


NO_SIZES: dict[object, int] = {}


class InFlightBytes:
    """The bytes in flight of one session, shared by its channels. The session is known by its number, as a reference
    would make a cycle."""

    __slots__ = ("_session", "_sizes", "allowance", "counts")

    def __init__(self, session: int = 0) -> None:
        self.allowance = UNLIMITED
        """The user's, if that has such a limit."""
        self.counts = False
        """Whether deliveries are counted: there is such a limit."""
        self._session = session
        self._sizes = NO_SIZES

    @property
    def total(self) -> int:
        """The bytes that are counted. It adds them up."""
        return sum(self._sizes.values())

    def charge(self, allowance: Allowance) -> None:
        """Counts the bytes for another user, or for none."""
        self.counts = allowance.limits.in_flight_bytes < inf
        if not self.counts:
            allowance = UNLIMITED
        if allowance is self.allowance:
            return
        self.allowance.leave(self._session)
        self.allowance.fly(-self.total)
        self._sizes = (self._sizes or {}) if self.counts else NO_SIZES
        self.allowance = allowance
        allowance.fly(self.total)

    def add(self, delivery: object, size: int) -> None:
        """Counts a delivery that was sent. Called only where deliveries are counted."""
        self._sizes[delivery] = size
        self.allowance.fly(size)

    def remove(self, delivery: object) -> None:
        """Ends the count of a delivery. Called only where deliveries are counted."""
        self.allowance.fly(-self._sizes.pop(delivery, 0))

    @property
    def permitted(self) -> bool:
        """Whether the session may be sent more deliveries."""
        return not self.counts or self.allowance.lets_fly(self._session)

    def permits(self, ends: Sequence[int], first: int, last: int) -> int:
        """Returns the end of those of records ``first`` … ``last - 1`` for which there is room; ``ends``: where records
        end. The record that uses up the room is among them. Without any room it is ``last``: then these are records
        that need no credit."""
        room = self.allowance.room
        if room <= 0:
            return last
        begin = ends[first - 1] if first else 0
        return min(last, bisect_left(ends, begin + room, first) + 1)

    @property
    def waiting(self) -> bool:
        """Whether the session waits for its user's limit."""
        return self._session in self.allowance.waiting

    @property
    def wait_reason(self) -> str:
        """Why the session waits for it, in words; empty: it does not."""
        return self.allowance.flight_reason if self.waiting else ""

    def wait(self) -> None:
        """Has the session wait for its turn, if it is the limit that keeps it from more."""
        if not self.permitted:
            self.allowance.wait(self._session)

    def wait_no_more(self) -> None:
        self.allowance.wait_no_more(self._session)


NOT_COUNTED = InFlightBytes()
"""That of channels that are no client's. It is shared and never changes."""
