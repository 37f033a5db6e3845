"""What must hold of the broker's books after every turn, when all has settled, and when all is over.

What each part knows of itself it asserts itself (``check``); here is what only the whole shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.sim.audit import standing
from tests.sim.in_rows import in_flight
from tests.sim.queues.model import PRESSURE, QueueModel, State

from headway.core.base.errors import Reason
from headway.core.consumer.channel import Life
from headway.core.consumer.feed import Feed
from headway.core.log.lanes.cursor import Cursor
from headway.core.log.lanes.lane import Lane
from headway.core.log.lanes.pool import RESERVE, STAYS_MAX, Pool
from headway.core.policy.rules.rule import COUNTED
from headway.core.queue.places import Key
from headway.core.queue.queue import queue_of

if TYPE_CHECKING:
    from tests.sim.queues.world import World


BEYOND_S = 0.5
"""A look comes every 0.2 s, unless the broker is late, and a turn every 0.1 s."""


def after_turn(world: World, *, full: bool) -> None:
    for model in world.models.values():
        _ended_in_time(world, model)
    for party in world.parties:
        if party.outlet is not None:
            party.outlet.check()
    _patience(world)
    _nobody_forgotten(world)
    _limit(world)
    if full:
        _books(world)


def _books(world: World) -> None:
    registry = world.broker.registry
    for model in world.models.values():
        model.check(world.now, allowed=world.allowed, readable=world.readable)
    for feed in registry.router.feeds.values():
        _lane(feed)
    _pool(world)
    _in_flight(world)
    assert set(registry.router.queues) == set(world.models)
    read = {feed for model in world.models.values() for feed in _feeds(model)}
    extra = [feed.key.filter for feed in registry.router.feeds.values() if feed not in read]
    assert not extra, f"lanes nobody reads: {extra}"


class Before(NamedTuple):
    """A queue as it was before a look."""

    all_slow: bool
    """All of its members are slow, or it has one."""
    came_back: set[Key]
    """The keys of records that members have given back."""


def before_look(world: World) -> dict[QueueModel, Before]:
    queues = {model: model.queue for model in world.models.values()}
    return {model: Before(queue.members.all_slow or len(queue.members) == 1, set(queue.backlog.requeued.by_key))
            for model, queue in queues.items()}  # fmt: skip


def looked_at(world: World, before: dict[QueueModel, Before]) -> None:
    """Asserts that a look has left out what a discard was to leave out. Records that came back in that same look wait
    for the next one; so does a queue whose last member became slow in it. Called at a tick, before anything else."""
    for model, then in before.items() if world.readable else ():
        queue = model.queue
        if not then.all_slow or not queue.members.all_slow or queue.discards.begun:
            continue
        fresh = set(queue.backlog.requeued.by_key) - then.came_back
        shown = queue.backlog.lag_records - len(fresh)
        for member in queue.members:
            for action in member.case.lasting():
                if action.which in COUNTED:
                    kept = action.records_kept(member.prefetch)
                    assert shown <= kept, f"{shown} wait in {model}, after {action} left {kept}"
                    world.count(f"looked at, {action.which}")


# -- books ----------------------------------------------------------------------------------------------------------


def _feeds(model: QueueModel) -> list[Feed]:
    return [cursor.feed for cursor in [*model.queue.backlog.cursors, *model.queue.backlog.draining]]


def _cursors(feed: Feed) -> list[Cursor]:
    """Of a lane that only queues read."""
    assert all(subscription.reader.queue is not None for subscription in feed.subscriptions)
    return [s for queue in feed.queues for s in [*queue.backlog.cursors, *queue.backlog.draining] if s.feed is feed]


def _lane(feed: Feed) -> None:
    lane, cursors = feed.lane, _cursors(feed)
    assert len(cursors) == feed.reading
    assert set(feed.listening) <= set(feed.queues)
    standing(feed, cursors)
    assert all(cursor.at_boundary for cursor in cursors)
    for queue in map(queue_of, feed.queues):
        queue.backlog.check()
        queue.members.check()
    if not any(queue.backlog.has_more for queue in feed.queues) and not lane.cursors_awaiting_acks:
        assert lane.resident_bytes == lane.spilled_bytes == 0, "everybody has everything, and it is still held"


def _pool(world: World) -> None:
    world.pool.check([feed.lane for feed in world.broker.registry.router.feeds.values()])
    assert world.pool.disk_bytes == sum(handle.size for handle in world.disk.held)


def _in_flight(world: World) -> None:
    """Channels and windows know what the clients know."""
    for party in world.parties:
        for number, channel in party.channels.items():
            mine = {id for other, id in party.flights if other == number}
            theirs = set(in_flight(channel)) | set(channel.timed_out)
            assert theirs == mine, f"{party.name}: {sorted(theirs)} in flight on {number}, has {sorted(mine)}"
            assert channel.used == len(mine)
            channel.check()
        for consumer in party.consumers.values():
            if consumer.live:
                used = sum(flight.consumer is consumer for flight in party.flights.values())
                assert consumer.subscription.window.used == used


def _limit(world: World) -> None:
    """Memory is within its limit, but for what each publisher's last read brought."""
    pool = world.pool
    if pool.memory_bytes <= pool.memory_limit:
        world.last_own = world.closed_bytes = 0
        for party in world.parties:
            party.last_bytes = 0
        return
    lanes = [feed.lane for feed in world.broker.registry.router.feeds.values()]
    index = sum(chunk.index_bytes for lane in lanes for chunk in lane.all_chunks() if chunk.spill)
    world.closed_bytes = max(world.closed_bytes, pool.closed_bytes)
    stays = min(world.closed_bytes, int(pool.memory_limit * STAYS_MAX))
    limit = max(pool.memory_limit, stays + int(pool.memory_limit * RESERVE))
    allowed = limit + sum(party.last_bytes for party in world.parties) + world.last_own + index
    assert pool.memory_bytes <= allowed, f"{pool.memory_bytes} bytes in memory, {allowed} allowed"


def _patience(world: World) -> None:
    """A job is not held beyond the patience that was asked for it: a look comes five times a second."""
    for party in world.parties:
        for flight in party.flights.values():
            consumer = flight.consumer
            if consumer is None or not consumer.live or flight.returned:
                continue
            patience_s = flight.patience_s
            late_s = world.broker.registry.lateness.within(flight.sent_s, world.now)
            held_s = world.now - flight.sent_s - late_s
            within = not patience_s or held_s < patience_s + BEYOND_S
            assert within, f"{flight.entry.number} was held for {held_s:.1f} s by {party.name}"


# -- nobody is forgotten --------------------------------------------------------------------------------------------


def _nobody_forgotten(world: World) -> None:
    world.ungated = {key: since for key, since in world.ungated.items() if not key[1].gated}
    for party in world.parties:
        if party.outlet is None:
            continue
        assert party.session is not None
        if party.outlet.blocked:
            assert party.outlet.waits, f"{party.name} is blocked and nobody will wake it"
        else:
            assert not party.outlet.out, f"{party.name} has room and bytes to send"
        if party.paused:
            assert party.session.paused_by, "paused for no reason"
            for by in party.session.paused_by:
                if isinstance(by, Pool | Lane):
                    continue  # it is looked at with the clock
                assert isinstance(by, Feed)
                since = world.ungated.setdefault((party.name, by), world.now) if not by.gated else world.now
                late = world.now - since
                assert late < 0.5, f"{party.name} is paused by a lane that nobody gates: {by.key.filter}"
    for model in world.models.values():
        if not model.lag:
            continue
        live = [consumer for consumer in model.consumers if consumer.live]
        for consumer in live[:1] if model.terms.single_active else live:
            party = next(party for party in world.parties if party.consumers.get(consumer.tag) is consumer)
            assert party.outlet is not None
            if party.outlet.blocked or consumer.subscription.life is Life.PAUSED:
                continue
            mine = [flight for flight in party.flights.values() if flight.consumer is consumer]
            credit = not consumer.acks or (
                len(mine) < consumer.prefetch and not any(flight.returned for flight in mine)
                and party._flying(consumer.channel) < party.channels[consumer.channel].limit
            )
            assert not credit, f"{party.name} could take what {model} has: {model.lag}"


def _ended_in_time(world: World, model: QueueModel) -> None:
    terms = model.terms
    if any(consumer.live for consumer in model.consumers):
        return
    assert not (terms.auto_delete and model.had_consumer), f"{model} should have ended with its last consumer"
    assert not (terms.exclusive and model.owner is None), f"{model} should have ended with its connection"
    if terms.idle_s is not None:
        assert world.now <= model.used_s + terms.idle_s + 6.0, f"{model} should have ended, nobody uses it"


# -- when all has settled -------------------------------------------------------------------------------------------


def settled(world: World) -> None:
    assert not world.disk.busy
    for party in world.parties:
        assert not party.flights, f"{party.name} settled everything, and it is not settled"
        assert not party.paused, f"{party.name} is still not read"
    for model in world.models.values():
        assert not model.lag, f"{model}: {model.lag} wait, and somebody reads"
        assert not model.counts[State.FLIES]
        lost = model.counts[State.WAITS] + model.counts[State.PASSED]
        told = model.queue.drops.by_reason
        assert lost == told.total() - model.counts[State.REJECTED] - model.counts[State.PURGED], f"{model}: {told}"
        _promised(world, model, lost)
    assert world.pool.memory_bytes == world.pool.disk_bytes == 0
    registry = world.broker.registry
    assert not registry.totals.slow
    lagging = [subscription.filter for subscription in registry.watched if subscription.has_more]
    assert not lagging


def _promised(world: World, model: QueueModel, lost: int) -> None:
    """What was confirmed to its publisher is left out for declared reasons only, unless it is one connection's alone.
    """
    told = model.queue.drops.by_reason
    pressed = sum(told[reason] for reason in (*PRESSURE, Reason.SPILL_FAILED))
    promised = sum(entry.promised and entry.state in (State.WAITS, State.PASSED) for entry in model.entries.values())
    kept = world.readable and not model.terms.exclusive
    assert promised <= lost - pressed or not kept, f"{model}: {promised} promised and not given: {told}"


def ended(world: World) -> None:
    registry, pool = world.broker.registry, world.pool
    assert not registry.sessions
    assert not registry.router.feeds
    assert not registry.router.queues
    for table in (registry.watched, registry.dirty, registry.ready_queues, registry.put_off, registry.woken,
                  registry.unused, registry.owned, registry.backpressure.waiting, registry.cuts,
                  world.broker.queues.feeds.homes,
                  world.broker.fanout.again):
        assert not table, table
    assert not registry.totals.consumers
    assert not registry.totals.slow_consumers
    assert not registry.totals.slow
    assert pool.memory_bytes == pool.disk_bytes == pool.spilling_bytes == 0
    assert not world.disk.held, "files nobody needs are kept"
    assert not registry.router.exchanges.queues
