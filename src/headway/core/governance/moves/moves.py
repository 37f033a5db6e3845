"""Moves: the effects of actions on a consumer. An action moves the cursor, or adds a skip that changes later moves.

========================= ==================================================================================
conflate                  detach the cursor; send the latest record per key whenever there is room
discard oldest            move the cursor towards the end until no more waits than the action allows
discard newest            keep the waiting records; skip new ones until the rule steps back
discard selector, topics  skip the records that match until the rule steps back
discard lowest_priority   skip records of the lowest priority while more waits than the action allows
discard older_per_key     conflate once; records left out count as discarded
offline                   write the chunks that the cursor still needs to disk, once for all their consumers
========================= ==================================================================================

A record that is half sent is finished first (half_sent.py).
"""

from __future__ import annotations

from headway.core.base import Reason, WorkSteps
from headway.core.consumer import Poll, Predicate, Skip, Subscription
from headway.core.delivery import conflate_once, free_cursor, marked
from headway.core.log import Chunk
from headway.core.message import matcher
from headway.core.policy import Action, Which
from headway.core.queue import queue_behind
from headway.core.routing import Registry
from headway.core.selector import compile_selector, priority_of

PRIORITY_MAX = 9
PRIORITY = Predicate(("priority of",), priority_of)
NOTHING_YET = Predicate(("nothing",), lambda _: False)
PRIORITY_WORK = 4
"""The work of finding the priority of one record."""


def discard(subscription: Subscription, action: Action, registry: Registry, now: float) -> None:
    """Applies a discard. Called at each look while its rule is active."""
    if isinstance(subscription, Poll):
        subscription.discard(action)
        return
    cursor = subscription.cursor
    queue = queue_behind(subscription)
    if cursor.chunk is None or (queue is not None and not queue.members.all_slow):
        return
    subscription.session.outlet.freshen()
    which = action.which
    if which is Which.OLDEST and queue is not None:
        kept, waiting = action.records_kept(subscription.prefetch), queue.backlog
        records = 0 if kept is None else waiting.lag_records - kept
        size = 0 if action.keep_bytes is None else waiting.lag_bytes - action.keep_bytes
        queue.drops.discard(records, size, Reason.DISCARDED)
        return
    if which is Which.OLDEST:
        free_cursor(subscription)
        number = _keep_from(subscription, action)
        registry.lost(subscription.skip_to(number, Reason.DISCARDED), Reason.DISCARDED)
        return
    if which is Which.OLDER_PER_KEY:
        conflate_once(subscription)
        return
    if which is Which.LOWEST_PRIORITY and not _more_than_kept(subscription, action):
        stop_discarding(subscription)
        return
    if any(skip.open for skip in subscription.skips):
        return
    first = cursor.number + (not cursor.at_boundary)
    if which is Which.NEWEST:
        kept = action.records_kept(subscription.prefetch)
        kept_to = cursor.lane.count if kept is None else min(cursor.lane.count, first + kept)
        if action.keep_bytes is not None:
            kept_to = min(kept_to, _number_at(cursor.chunk, cursor.position + action.keep_bytes))
        skip = Skip(max(kept_to, first), None, Reason.DISCARDED)
        skip.position = _position_of(cursor.chunk, skip.first)
    elif which is Which.LOWEST_PRIORITY:
        skip = Skip(first, NOTHING_YET, Reason.DISCARDED)
        subscription.skips.append(skip)
        registry.deferred.begin(_find_lowest(subscription, skip), now, client=subscription.session)
        return
    elif which is Which.TOPICS:
        tests = [matcher(pattern) for pattern in action.topics]
        on_some = Predicate(("topics", action.topics), lambda r: any(t(r.topic) for t in tests))
        skip = Skip(first, on_some, Reason.DISCARDED)
    else:
        selector = compile_selector(action.selector)
        skip = Skip(first, Predicate(("selector", action.selector), selector.matches), Reason.DISCARDED)
    subscription.skips.append(skip)


def stop_discarding(subscription: Subscription) -> None:
    """Ends open skips, so that records published from now on are not left out."""
    for skip in subscription.skips:
        if skip.open:
            skip.stop = subscription.cursor.lane.count


def _keep_from(subscription: Subscription, action: Action) -> int:
    """Returns the number of the first record that stays when no more waits than the action allows."""
    cursor = subscription.cursor
    lane = cursor.lane
    number = cursor.number
    kept = action.records_kept(subscription.prefetch)
    if kept is not None:
        number = max(number, lane.count - kept)
    if action.keep_bytes is not None:
        assert cursor.chunk is not None
        number = max(number, _number_at(cursor.chunk, lane.end - action.keep_bytes))
    return number


def _number_at(chunk: Chunk, position: int) -> int:
    """Returns the number of the first record that starts at or behind a lane position, from ``chunk`` on."""
    while chunk.next is not None and position >= chunk.stop:
        chunk = chunk.next
    if position <= chunk.start:
        return chunk.first_number
    index = chunk.index_at(position)
    return chunk.first_number + index + (not chunk.at_boundary(position) and index < len(chunk))


def _more_than_kept(subscription: Subscription, action: Action) -> bool:
    """Tells whether more waits than the action would leave."""
    kept = action.records_kept(subscription.prefetch)
    too_many = kept is not None and subscription.lag_records > kept
    return too_many or (action.keep_bytes is not None and subscription.lag_bytes > action.keep_bytes)


def _position_of(chunk: Chunk, number: int) -> int:
    """Returns the lane position of record ``number``, from ``chunk`` on."""
    while chunk.next is not None and number >= chunk.next.first_number:
        chunk = chunk.next
    return chunk.start + chunk.record_start(min(number - chunk.first_number, len(chunk)))


def _of_priority(level: int) -> Predicate:
    """Returns a test for records of this priority or a lower one."""
    return Predicate(("priority", level), lambda record: priority_of(record) <= level)


def _find_lowest(subscription: Subscription, skip: Skip) -> WorkSteps:
    """Finds the lowest priority of the waiting records that are in memory, some records in each step. Then the skip
    leaves out that one, unless it is over by then."""
    lowest, chunk, index = PRIORITY_MAX, subscription.cursor.chunk, 0
    while chunk is not None:
        if chunk.resident and index < len(chunk):
            found = marked(subscription, chunk, PRIORITY, index)[index:]
            lowest, index = min(lowest, *found), index + len(found)
            yield PRIORITY_WORK * len(found)
        else:
            chunk, index = chunk.next, 0
        here = subscription.cursor.chunk
        if here is None or subscription.ended or skip not in subscription.skips:
            return
        if chunk is not None and chunk.first_number < here.first_number:
            chunk, index = here, 0  # it has read on meanwhile
    skip.predicate = _of_priority(lowest)
