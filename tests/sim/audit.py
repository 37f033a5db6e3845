"""What must hold of the broker's books after every turn, when all has settled, and when all is over.

What each part knows of itself it asserts itself (``check``); here is what only the whole shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from math import inf
from typing import TYPE_CHECKING

from tests.sim.in_rows import unacknowledged
from tests.sim.model import SubModel, has_high_value, take_apart
from tests.sim.stream import as_publish

from headway.core.base.errors import Reason
from headway.core.consumer.feed import Feed
from headway.core.consumer.subscription import Subscription
from headway.core.log import StatePass
from headway.core.log.lanes import cursor as cursor_module
from headway.core.log.lanes.cursor import Cursor
from headway.core.log.lanes.lane import Lane
from headway.core.log.lanes.pool import RESERVE, STAYS_MAX, Pool
from headway.core.message.topics import matches
from headway.core.policy.rules.rule import COUNTED, ActionKind, Which
from headway.core.queue.queue import queue_of
from headway.core.routing.backpressure import WideRecords

UNDECLARED = {Reason.MEMORY_LIMIT, Reason.DISK_LIMIT, Reason.CLIENT_SHARE, Reason.SPILL_FAILED}
"""Reasons that nobody has set a limit for."""

if TYPE_CHECKING:
    from tests.sim.client import Client
    from tests.sim.world import World


def after_turn(world: World, *, full: bool) -> None:
    _liveness(world)
    _limit(world)
    if full:
        _books(world)
        _balances(world)


def _books(world: World) -> None:
    broker = world.broker
    feeds = list(broker.registry.router.feeds.values())
    for feed in feeds:
        standing(feed, cursors(feed))
        for queue in map(queue_of, feed.queues):
            queue.backlog.check()
            queue.members.check()
        _places(feed, broker.registry.watched)
        _held(feed)
    for pool in broker.registry.distinct_pools():
        _pool(world, pool, feeds)
    for session in broker.registry.sessions.values():
        session.channel.check()
        for subscription in session.subscriptions.values():
            if subscription.reader.queue is None:
                subscription.left_out.check(subscription.cursor)
                _backfills(subscription)


# -- books ----------------------------------------------------------------------------------------------------------


def cursors(feed: Feed) -> list[Cursor]:
    found = [s.cursor for s in feed.subscriptions if s.reader.queue is None]
    return [*found, *(queue.backlog.cursor for queue in feed.queues)]


def standing(feed: Feed, found: list[Cursor]) -> None:
    """Its lane keeps its own books; whoever reads it stands there, and nobody else does."""
    feed.lane.check()
    for cursor in found:
        assert cursor.lane is feed.lane
        if cursor.floor is None:  # the lane has checked the others
            cursor.check()
    chunks = set(feed.lane.chunks())
    held = [chunk for cursor in found for chunk in unacknowledged(cursor).values()]
    held += [cursor.floor for cursor in found if cursor.floor is not None]
    held += [cursor.chunk for cursor in found if cursor.attached]
    assert all(chunk in chunks for chunk in held), "a chunk was dropped that is wanted"
    aside = {chunk for cursor in found for chunk in cursor.aside_by_chunk()}
    assert set(feed.lane.apart) <= aside <= {*chunks, *feed.lane.apart}, "a chunk was dropped that is wanted"
    assert sum(len(chunk.cursors_here) for chunk in chunks) == sum(cursor.floor is not None for cursor in found)


def _held(feed: Feed) -> None:
    """Behind its position a cursor holds what its client may have in flight, and little that is settled."""
    for subscription in feed.subscriptions:
        one = subscription.cursor
        if subscription.reader.queue is not None or one.floor is None or not one.awaits_acks:
            continue
        behind = [chunk for chunk in feed.lane.chunks() if one.floor.start <= chunk.start < one.chunk.start]
        left, records = cursor_module.SETTLED_BYTES, 0
        for chunk in reversed(behind[:-1]):  # it looks at this when it comes to a chunk
            left -= chunk.size
            records += len(chunk) if left < 0 else 0
        assert records <= 2 * subscription.channel.limit, f"{records} records held behind {subscription.filter}"


def _backfills(subscription: Subscription) -> None:
    """What it has to be sent before the records of its lane is part of its lag."""
    for backfill in subscription.backfills:
        if isinstance(backfill.records, StatePass):
            backfill.records.check()
    before = subscription.backfill_lag()
    assert 0 <= before.records <= subscription.lag_records
    assert 0 <= before.bytes <= subscription.lag_bytes


def _places(feed: Feed, watched: Container[Subscription]) -> None:
    for subscription in feed.subscriptions:
        session = subscription.session
        if subscription.reader.queue is not None or session.subscriptions.get(subscription.filter) is not subscription:
            continue  # no cursor of its own, or about to be handed over
        places = [subscription in place for place in (feed.waiting, feed.resting, session.lagging)]
        assert sum(places) == 1, f"{subscription.filter} stands in {places}"
        if places[0]:
            assert not subscription.has_more, f"{subscription.filter} waits for nothing, but has more"
        if places[2] and subscription.has_more:
            assert subscription in watched, f"{subscription.filter} lags, and the governor does not look at it"


def _pool(world: World, pool: Pool, feeds: list[Feed]) -> None:
    pool.check([feed.lane for feed in feeds if feed.key.pool is pool])
    states = [state for state in world.broker.registry.router.states if state.pool is pool]
    for state in states:
        state.check()
    assert pool.state_bytes == sum(state.bytes for state in states)
    tabs = [session.tab for session in world.broker.registry.sessions.values() if session.pool is pool]
    tabs += [world.broker.registry.declared] if pool is world.pool else []
    tabs += [will.tab for will in world.broker.admission.waiting_wills if will.tab.pool is pool]
    assert pool.clients_bytes == sum(tab.bytes for tab in tabs), "what clients take up is on their tabs"
    assert all(tab.bytes == sum(tab.amounts.values()) for tab in tabs)
    assert pool.disk_bytes == sum(handle.size for handle in world.disk.held if handle.pool is pool)


def _limit(world: World) -> None:
    """Within the limit, but for what each publisher's last read brought (and the broker's own few words)."""
    for pool in world.broker.registry.distinct_pools():
        if pool.memory_bytes <= pool.memory_limit:
            world.own_words[pool] = world.closed_bytes[pool] = 0
            continue
        world.closed_bytes[pool] = max(world.closed_bytes[pool], pool.closed_bytes)
        lanes = [feed.lane for feed in world.broker.registry.router.feeds.values()]
        index = sum(chunk.index_bytes for lane in lanes for chunk in lane.all_chunks() if chunk.spill)
        stays = min(world.closed_bytes[pool] + pool.state_bytes, int(pool.memory_limit * STAYS_MAX))
        limit = max(pool.memory_limit, stays + int(pool.memory_limit * RESERVE))
        allowed = limit + sum(last[pool] for last in world.last_reads.values()) + world.own_words[pool] + index
        assert pool.memory_bytes <= allowed, f"{pool.memory_bytes} bytes in memory, {allowed} allowed"


# -- nobody is forgotten --------------------------------------------------------------------------------------------


def _liveness(world: World) -> None:
    registry = world.broker.registry
    for session in registry.sessions.values():
        outlet = session.outlet
        if not session.connected:
            continue
        if outlet.blocked:
            assert outlet.waits, f"{session.client} is blocked and nobody will wake it"  # type: ignore[attr-defined]
            continue
        assert not outlet.out or world.disk.unreadable, f"{session.client} has room and bytes to send"
        assert session.half_sent is None or world.disk.unreadable
        for subscription in session.lagging:
            stands = subscription.has_more and session.channel.left > 0 and not world.disk.unreadable
            assert not stands, f"{session.client} has room, credit and more of {subscription.filter}, and gets none"
    for feed in registry.router.feeds.values():
        for member in (member for queue in feed.queues for member in queue.members if member.has_more):
            session = member.session
            ready = session.connected and not session.outlet.blocked and session.channel.left > 0
            assert not ready or world.disk.unreadable, f"{session.client} could take what group {feed.key.filter} has"
    held_back = [session for session in registry.sessions.values() if session.paused_by]
    assert registry.backpressure.publishers == len(held_back), "a publisher that left is still counted"
    assert sum(registry.backpressure.by_cause.values()) == sum(len(session.paused_by) for session in held_back)
    for client in world.clients:
        if client.paused and client.session is not None and client.session.connected:
            reasons = client.session.paused_by
            assert reasons, "paused for no reason"
            for by in reasons:
                assert isinstance(by, Pool | Lane | WideRecords) or by.gates, "paused, and the reason is gone"  # type: ignore[attr-defined]


# -- sums -----------------------------------------------------------------------------------------------------------


def _pending(world: World) -> Counter[object]:
    """Live records that are written for a client and not yet taken by its socket."""
    found: Counter[object] = Counter()
    for client, stream in world.by_outlet.values():
        last: dict[SubModel, int] = {}
        for frame in stream.pending():
            item = as_publish(frame.item)
            if item is None or item.dup:
                continue
            seen, model = take_apart(item), client._whose(stream, frame, item)
            sequences = world.history.sequences(seen.topic, seen.payload)
            if model.shared is not None:
                found[model.shared] += not any(s in model.shared.seen for s in sequences)
                continue
            if seen.retain and not model.keeps_retain:
                continue
            handed = model.handed_over(sequences)
            if handed is not None:
                found[handed[0]] += 1
                continue
            after = last.get(model, model.last)
            sequence = next((s for s in sequences if s > after), sequences[-1])
            last[model] = sequence
            found[model] += sequence > model.start
    return found


def waiting(subscription: Subscription) -> int:
    left = subscription.feed.lane.count - subscription.cursor.number - subscription.left_out.records
    return left + subscription.conflation.owed_records


def _balances(world: World) -> None:
    if world.broker.registry.backpressure.wide.coming:
        return  # what its lanes have not got yet waits nowhere
    pending = _pending(world)
    for model in world.models:
        if model.shared is not None or model.subscription.request.options.start != "end":
            continue
        if (model.live and model.replaced_by is not None) or model.filter[0] == "$":
            continue  # it is being handed over; or its records look too much alike
        wrong = model.balance(pending[model] + (waiting(model.subscription) if model.live else 0))
        assert wrong is None, wrong
    for feed, group in world.groups.items():
        if group.live:
            (queue,) = feed.queues
            backlog = queue.backlog
            kept = backlog.standing.records + sum(not one.returns for one in backlog.requeued)  # for another member
            wrong = group.balance(pending[group] + feed.lane.count - backlog.cursor.number + kept)
            assert wrong is None, wrong


def looked_at(world: World) -> None:
    """After a look nothing waits that a discard was to leave out. Called at a tick, before anything else."""
    for model in world.models if world.readable else ():
        subscription = model.subscription
        if model.shared is not None or not model.live or not subscription.cursor.attached or model.filter[0] == "$":
            continue
        if model.replaced_by is not None:
            continue  # it is being handed over
        if not subscription.session.connected and subscription.session.gone_since_s == world.now:
            continue  # a disk that failed in this look has cost it its connection; the next look discards
        shown, history = subscription.lag_records - subscription.backfill_lag().records, world.history.records
        for action in subscription.case.lasting():
            if action.kind is not ActionKind.DISCARD or subscription.left_out.looks or subscription.backfilling:
                continue
            waiting = [history[sequence] for sequence in model.expected if sequence > model.last]
            most: float = inf
            if action.which in COUNTED:
                most = action.records_kept(subscription.prefetch)
            elif action.which is Which.SELECTOR:
                most = sum(not has_high_value(record) for record in waiting)
            elif action.which is Which.TOPICS:
                most = sum(not any(matches(one, record.topic) for one in action.topics) for record in waiting)
            half_sent = not subscription.cursor.at_boundary
            assert shown <= most + half_sent, f"{shown} wait for {model}, after {action} left {most}"
            world.count(f"looked at, {action.which}")


# -- when all has settled -------------------------------------------------------------------------------------------


def settled(world: World) -> None:
    registry = world.broker.registry
    assert not world.disk.busy
    for session in registry.sessions.values():
        if not session.connected:
            continue
        assert not session.channel.used, f"{session.client} acknowledged everything, not all is settled"
        for subscription in session.subscriptions.values():
            assert not subscription.has_more, f"{session.client} reads, and {subscription.filter} does not arrive"
            assert subscription not in registry.watched
            assert not subscription.case.slow
    for model in world.models:
        if model.shared is None and model.live and model.subscription.session.connected:
            _complete(world, model)
            _promised(world, model)
    for client in world.clients:
        assert client.stream is None or not client.paused or _rightly(world, client), f"{client.name} is still not read"
        assert client.idle


def _rightly(world: World, client: Client) -> bool:
    """It is not read for the sake of somebody durable who is away, and was promised what it has been sent; or nobody
    is, for such hold far more than the memory (one read brought it)."""
    assert client.session is not None
    away = [model for model in world.models if model.live and not model.subscription.session.connected]
    beyond = [pool for pool in world.broker.registry.distinct_pools()
              if pool.closed_bytes + pool.state_bytes > pool.memory_limit * STAYS_MAX]  # fmt: skip
    return all(
        any((one.subscription.feed.lane is by or by in beyond) and _is_promised(one) for one in away)
        for by in client.session.paused_by
    )  # fmt: skip


def _is_promised(model: SubModel) -> bool:
    """Tells from what the client asked for, and not from what the broker takes it for, whether confirmed records wait
    for it while it is away."""
    return model.qos > 0 and model.subscription.session.expiry_s > 0


def _promised(world: World, model: SubModel) -> None:
    """What was confirmed to its publisher has been given to who is durable, or left out for a declared reason."""
    subscription = model.subscription
    unsure = model.conflates or model.replaced is not None or model.replaced_by is not None
    if not _is_promised(model) or unsure or model.filter[0] == "$" or subscription.request.options.start != "end":
        return
    missing = [s for s in model.expected if world.history.records[s].qos and s not in model.seen]
    declared = sum(count for reason, count in subscription.counters.gap_records.items() if reason not in UNDECLARED)
    world.count("promised and given") if model.expected and not missing else None
    assert len(missing) <= declared or not world.readable, (
        f"{model}: {len(missing)} promised and not given, {dict(subscription.counters.gap_records)}"
    )


def _complete(world: World, model: SubModel) -> None:
    """Gaps were told, and the last value per key arrived unless it was left out on purpose."""
    subscription = model.subscription
    counted = subscription.counters.gap_records
    if model.version5:
        waiting = subscription.gap.records if subscription.gap is not None else 0
        assert model.announced + waiting == counted.total() - model.silent_gaps, (
            f"{model.filter}: {counted} left out, {model.announced} announced, {waiting} to be announced"
        )
    if model.filter[0] == "$":
        return  # these records look too much alike
    evicted = subscription.conflation.state is not None and subscription.conflation.state.evicted_records
    if evicted or set(counted) - {Reason.CONFLATED} or model.excess or (model.cut and not model.qos):
        return
    key = subscription.conflation.state.key.text if subscription.conflation.state is not None else "topic"
    newest = {model.history.key(sequence, key): sequence for sequence in model.expected}
    superseded = _superseded(world, model, key)
    for name, sequence in newest.items():
        if superseded.get(name, 0) > sequence:
            continue
        if min(model.qos, model.history.records[sequence].qos) == 0 and model.cut:
            continue
        assert sequence in model.seen, f"{model.filter}: the last value of {name} did not arrive"
    for topic, sequence in model.retained.items():
        record = world.history.records[sequence]
        own = model.no_local and record.publisher == subscription.session.number
        unfit = own or record.expires_s < inf or (model.selector and not model.wants(record))
        if model.cut or unfit or world._retained.get(topic) != sequence:
            continue
        assert sequence in model.retained_seen, f"{model.filter}: retained record of {topic} did not arrive"


def _superseded(world: World, model: SubModel, key: str) -> dict[tuple[str, str | None], int]:
    """The last value per key that is not for this subscription: with it, the one before is history in the state."""
    if not model.selector and not model.no_local:
        return {}
    wanted = set(model.expected)
    return {
        model.history.key(sequence, key): sequence
        for sequence, record in world.history.records.items()
        if sequence not in wanted and matches(model.filter, record.topic)
    }


def ended(world: World) -> None:
    registry, pool = world.broker.registry, world.pool
    assert not registry.sessions
    assert not registry.router.feeds
    assert not registry.watched
    assert not registry.totals.consumers
    assert not registry.totals.slow_consumers
    assert not any(world.broker.fanout.again)
    assert not registry.dirty
    states = sum(state.bytes for state in registry.router.states)
    assert all(state.declared for state in registry.router.states)
    assert pool.clients_bytes == sum(session.tab.bytes for session in registry.sessions.values())
    for one in registry.distinct_pools():
        left = one.memory_bytes - (states if one is pool else 0)
        assert left == 0, f"{left} bytes left in {one.name} when all is over"
        assert one.disk_bytes == 0
        assert one.spilling_bytes == 0
    assert not world.disk.held, "files nobody needs are kept"
    for model in world.models:
        if model.shared is None and model.subscription.request.options.start == "end" and model.filter[0] != "$":
            wrong = model.balance(0)
            assert wrong is None, wrong
    for group in world.groups.values():
        wrong = group.balance(0)
        assert wrong is None, wrong
