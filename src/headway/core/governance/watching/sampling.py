"""Sampling turns a subscription's cursor, session and outlet into the plain numbers that policies judge."""

from __future__ import annotations

from math import inf

import msgspec

from headway.core.base import format_duration
from headway.core.consumer import Due, Shares, Subscription, due_of, is_patient
from headway.core.policy import ANY_LUMP_BYTES, Figures, Holding, Sample
from headway.core.routing import Registry

HOLDING_S = 0.9


def observe(registry: Registry, subscription: Subscription, now: float, shares: Shares) -> Sample:
    """Takes a sample of a consumer; its meter remembers it."""
    session, cursor, lane = subscription.session, subscription.cursor, subscription.feed.lane
    lag_records, lag_bytes = subscription.lag_records, subscription.lag_bytes
    apart = subscription.reader.counts_apart
    # What a consumer takes before its lane moves its position, too: else it would seem to stand still.
    before_bytes = subscription.counters.written_bytes
    if subscription.backfills:
        before_bytes -= subscription.backfills[0].unsent(session.outlet).bytes
    position_bytes = cursor.position + subscription.left_out.bytes + before_bytes
    if apart:
        position_bytes = subscription.counters.handed_bytes
    session.look_at(subscription)
    pace = session.outlet.pace(now)
    oldest_unacked_s = subscription.oldest_unacknowledged_s()
    starved_since_s = subscription.credit_exhausted_since_s
    due, reads_itself = due_of(subscription), subscription.reader.reads_itself
    if reads_itself:
        patience_s = subscription.patience_s
        due = Due(pace.stands_since_s + patience_s, patience_s) if pace.stands_since_s < inf else None
    part = _own_part(subscription)
    silent_since_s, ack_pause_s = inf, 0.0
    if minds_silence(registry, subscription) and (holding := hold(subscription, now)) is not None:
        unsure = pace.stands_since_s < inf and starved_since_s == inf  # whether it has got what it holds
        if session.connected and not unsure and not is_patient(subscription):
            silent_since_s = holding.late_since(starved_since_s if lag_records else inf)
        if silent_since_s < inf:
            ack_pause_s = holding.usual_pause_s
    user_full = session.channel.in_flight_bytes.waiting
    if user_full and not session.channel.used:
        starved_since_s = inf  # others of its user use up the limit
    subscription.note_view()
    pool = subscription.feed.key.pool
    held_bytes = subscription.gating_bytes if pool.topic else session.holdings.gating_bytes
    used_bytes = held_bytes + _state_share(subscription)
    figures = Figures(
        position_bytes=position_bytes,
        end_bytes=position_bytes + lag_bytes if lag_records or apart else lane.end + before_bytes,
        lag_records=lag_records,
        flows_since_s=lane.flows_since_s,
        oldest_time_s=subscription.oldest_time() if lag_records else inf,
        empties=0 if subscription.reader.queue is None else subscription.reader.queue.empties,
        blocked_since=pace.stands_since_s,
        usual_pause=pace.usual_pause_s,
        unread_since=pace.unread_since_s,
        unread_pause=pace.unread_pause_s,
        unacknowledged_bytes=round(part * pace.unacknowledged_bytes),
        lump_bytes=part * pace.lump_bytes if pace.lump_bytes < ANY_LUMP_BYTES else ANY_LUMP_BYTES,
        connection_bytes=_connection_bytes(subscription, pace.unacknowledged_bytes) if part < 1 else None,
        part=part,
        connected=session.connected,
        credit_exhausted_since=starved_since_s,
        oldest_unacked_s=oldest_unacked_s,
        patient_until=-inf if due is None else due.at_s,
        excused=due is not None and due.patience_s > 0 and (starved_since_s < inf or reads_itself),
        user_full=user_full,
        acknowledged=acknowledged(subscription) if starved_since_s < inf else 0,
        unacknowledged_since=silent_since_s,
        ack_pause=ack_pause_s,
        in_flight=subscription.window.used,
        prefetch=subscription.prefetch,
        held_bytes=_held_bytes(subscription, shares),
        pool_share=used_bytes / max(1, pool.memory_limit),
        slow_fraction=registry.totals.slow_fraction(subscription.feed.key.filter),
    )
    return subscription.case.meter.observe(now, figures)


def _own_part(subscription: Subscription) -> float:
    """Returns the consumer's part of what its connection has taken. What is under way has about the same parts: the
    kernel does not know whose bytes it holds."""
    session = subscription.session
    taken_bytes = session.outlet.taken_bytes
    if len(session.subscriptions) == 1 or not taken_bytes:
        return 1.0
    return min(1.0, subscription.delivered.bytes / taken_bytes)


def _connection_bytes(subscription: Subscription, unacknowledged_bytes: int) -> int | None:
    """Returns how many bytes have reached its client in all; None if its own window holds the consumer up, too."""
    return None if subscription.prefetch else subscription.session.outlet.taken_bytes - unacknowledged_bytes
def minds_silence(registry: Registry, subscription: Subscription) -> bool:
    """Tells whether a policy that judges the consumer, or a trial, compares ``unacknowledged_time``."""
    return subscription.case.policy.minds_silence or registry.trials_mind_silence


def hold(subscription: Subscription, now: float) -> Holding | None:
    """Looks at what the consumer holds unacknowledged, once a second; None: that is not known for it alone."""
    holding, qos = subscription.case.holding, subscription.request.qos
    if not qos or (holding is not None and now - holding.looked_s < HOLDING_S):
        return holding
    alone = subscription.window is not subscription.channel or len(subscription.session.subscriptions) == 1
    if subscription.window.counts or not alone:
        return None
    acked, held = acknowledged(subscription), subscription.window.used
    if holding is None:
        if not acked and not held:
            return None
        holding = subscription.case.holding = Holding(now, acked)
    holding.look(now, acked, held, subscription.oldest_unacknowledged_s())
    return holding


def peek(registry: Registry, subscription: Subscription, now: float, shares: Shares) -> Sample:
    """Returns a sample without measuring: its rates are those of the last look at the consumer."""
    session = subscription.session
    last = subscription.case.last_sample if subscription in registry.watched else Sample()
    due = due_of(subscription)
    late_s = now - due.at_s if due is not None else 0.0
    return msgspec.structs.replace(
        last,
        lag_records=subscription.lag_records,
        lag_bytes=subscription.lag_bytes,
        lag_age=max(0.0, now - subscription.oldest_time()) if subscription.lag_records else 0.0,
        blocked_time=session.outlet.blocked_s(now) if subscription.has_more else 0.0,
        unread_time=last.unread_time if subscription.has_more else 0.0,
        unacknowledged_time=last.unacknowledged_time if subscription.window.used else 0.0,
        ack_age=max(0.0, late_s),
        patience_left=max(0.0, -late_s),
        in_flight=subscription.window.used,
        held_bytes=_held_bytes(subscription, shares),
        pool_share=(subscription.gating_bytes + _state_share(subscription))
        / max(1, subscription.feed.key.pool.memory_limit),
        slow_count=subscription.case.slow_count,
    )


def stall_s(subscription: Subscription, now: float) -> float:
    """Returns for how many seconds the consumer has held publishers back since it began."""
    return subscription.case.blocked_publishers_s + (now - subscription.feed.gates.get(subscription, now))


def state_of(subscription: Subscription) -> str:
    """Returns the consumer's state in one word: ok, behind, slow, offline, conflating, discarding or away."""
    if not subscription.session.connected:
        return "away"
    if subscription.conflating:
        return "conflating"
    if any(skip.open for skip in subscription.skips):
        return "discarding"
    if subscription.cursor.offline:
        return "offline"
    if subscription.case.slow:
        return "slow"
    return "behind" if subscription.has_more else "ok"


def conflated_by(subscription: Subscription) -> str:
    """Returns, in words, who has a consumer given the latest record per key, and how often; empty if nobody does."""
    conflation = subscription.conflation
    if not subscription.conflating:
        return ""
    if conflation.every_s is None:
        return "live query" if subscription.feed.live is not None else f"policy {subscription.case.policy.name!r}"
    who = f"[[topic]] {conflation.by_topic}" if conflation.by_topic else "its own wish"
    return f"{who}, every {format_duration(conflation.every_s)}" if conflation.every_s else who


def with_peer(sample: Sample, subscription: Subscription) -> Sample:
    """Returns the sample with the transport's data on the peer. Only called for a decision."""
    if subscription.reader.reads_itself:
        return msgspec.structs.replace(sample, reads_itself=True)
    peer = subscription.session.outlet.peer()
    return msgspec.structs.replace(sample, peer_window_closed=peer.window_closed, retransmitting=peer.retransmitting)


def acknowledged(subscription: Subscription) -> int:
    """Returns how many records the client has acknowledged, or less: others of its session may share the window."""
    return max(0, subscription.delivered.records - subscription.window.used)


def _held_bytes(subscription: Subscription, shares: Shares) -> int:
    """Returns the consumer's share of the held bytes. The shares of all consumers add up to these bytes."""
    lane, cursor = subscription.feed.lane, subscription.cursor
    if lane not in shares:
        shares[lane] = lane.held_shares(), lane.apart_shares()
    by_floor, apart = shares[lane]
    held = by_floor.get(cursor.floor, 0.0) if cursor.floor is not None else 0.0
    held += apart.get(cursor.owner, 0.0)
    return int(held / subscription.reader.sharers + _state_share(subscription) + _copied_bytes(subscription))


def _copied_bytes(subscription: Subscription) -> float:
    """Returns what is held beside lanes and states: what its live query shows, shared with all who ask for the same,
    the records that its query of a state has saved, and what is rendered of a snapshot and not taken."""
    live = subscription.feed.live
    held = 0.0 if live is None else live.held_share
    if subscription.backfills:
        held += subscription.backfills[0].unsent(subscription.session.outlet).bytes
        held += sum(backfill.records.held_bytes for backfill in subscription.backfills)
    return held


def _state_share(subscription: Subscription) -> float:
    """Returns the consumer's share of a state that exists only for its readers; 0 for a declared state."""
    state = subscription.conflation.state
    return 0.0 if state is None or state.declared else state.bytes / max(1, state.readers)
