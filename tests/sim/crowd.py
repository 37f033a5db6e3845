"""A world whose memory is full of what clients do not read, and the check that the biggest of them goes first.

What each client holds is added up here from all chunks of all lanes, record by record; the broker has its rankings.
"""

from __future__ import annotations

from tests.sim.away import subscribe_plainly
from tests.sim.chance import TOPICS, Manner
from tests.sim.client import Client
from tests.sim.world import World

from headway.core.base.errors import Reason
from headway.core.consumer import Session, Subscription
from headway.core.governance import memory as pressure
from headway.core.log.lanes import lane
from headway.core.log.lanes.lane import Lane
from headway.core.log.lanes.pool import GRACE_S
from headway.core.policy.rules.rule import Policy
from headway.core.policy.verdicts import Verdict

CHUNK_BYTES = 2000
GREEDY = Manner("greedy", reads=0.0)
LATE_S = GRACE_S + pressure.REST_S
"""A client whose oldest records are older than this is late, and was when its rest ended."""


class CrowdWorld(World):
    """No policies, no states, no disk: nobody leaves but for want of memory."""

    STATES = 0.0

    def __init__(self, seed: int) -> None:
        self.swept_s = self.looked_s = 0.0
        """When the last sweep began, and when the last one that has looked at everybody did."""
        super().__init__(seed)
        rng, governor = self.rng, self.broker.governor
        self.pool.memory_limit, self.pool.disk_limit = rng.choice((60_000, 120_000)), 0
        self.pool.client_share = self.pool.lane_share = 1.0
        self.size_max = 2000
        self.clients += [Greedy(self, 100 + number, GREEDY) for number in range(6)]
        sweep = governor.sweep

        def swept(now: float, late_s: float = 0.0) -> object:
            before = governor.late_s
            found = sweep(now, late_s)
            if governor.late_s == before:  # else it has looked at nobody
                self.swept_s = now
            return found

        governor.sweep = swept  # type: ignore[method-assign,assignment]

    def _sizes(self) -> None:
        super()._sizes()
        lane.CHUNK_BYTES = pressure.MORE_BYTES = CHUNK_BYTES

    def _policies(self) -> tuple[Policy, ...]:
        return ()

    def _act(self, client: Client) -> None:
        if isinstance(client, Greedy):
            client.act()
        else:
            super()._act(client)

    def turn(self) -> None:
        super().turn()
        if not self.broker.governor.sweeping:
            self.looked_s = self.swept_s

    def _judged(self, verdict: Verdict) -> None:
        if verdict.reason is Reason.MEMORY_LIMIT:
            self._biggest_goes(verdict)
        super()._judged(verdict)

    def _biggest_goes(self, verdict: Verdict) -> None:
        """Whoever gives way holds more than any other client that is late; or it is furthest back in a lane that
        holds about as much."""
        sessions = self.broker.registry.sessions
        gone = sessions[verdict.client]
        its_lane = gone.subscriptions[verdict.filter].feed.lane
        most = max(held_by(gone, self.now) + gone.tab.bytes, its_lane.unspilled_bytes + CHUNK_BYTES)
        for other in sessions.values():
            surely = other is not gone and other.connected and other.expiry_s == 0
            if surely and all(one.oldest_time() <= self.now - LATE_S for one in alone(other)):
                held = held_by(other, self.looked_s)
                assert held <= most, f"{verdict.client} goes with {most} bytes, and {other.client} holds {held}"
        several = len(alone(gone)) > 1 and held_by(gone, self.now) > its_lane.unspilled_bytes + CHUNK_BYTES
        self.count("one that holds much in several goes") if several else None


def alone(session: Session) -> list[Subscription]:
    """Lagging subscriptions that are not members of a group."""
    return [one for one in session.lagging if one.reader.queue is None and one.cursor.attached and one.has_more]


def held_by(session: Session, upto_s: float) -> int:
    """The bytes in memory, published by then, that are held for a client. A lane counts once."""
    lanes: dict[Lane, int] = {}
    for one in alone(session):
        cursor, held = one.cursor, 0
        for chunk in cursor.lane.chunks():
            for index in range(len(chunk)) if chunk.resident and chunk.start >= cursor.chunk.start else ():
                start = chunk.start + chunk.record_start(index)
                if start >= cursor.position and chunk.time_of(index) <= upto_s:
                    held += chunk.size_of(index)
        lanes[cursor.lane] = max(held, lanes.get(cursor.lane, 0))
    return sum(lanes.values())


class Greedy(Client):
    """Subscribes to much, or to little, and reads nothing of it."""

    def __init__(self, world: World, number: int, manner: Manner) -> None:
        super().__init__(world, number, manner)
        self.expiry_s, self.marks = 0.0, False
        self.packet_bytes_max = 2**28
        self.capacity = 300

    def act(self) -> None:
        world, rng = self.world, self.world.rng
        if self.stream is None and world.now >= self.away_until_s and self.connect(clean=True):
            for topic in rng.sample(TOPICS, k=rng.choice((1, 1, 2, 6))):
                subscribe_plainly(self, topic, 0)
