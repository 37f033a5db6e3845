"""Watching: which consumers are looked at, and what is seen of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from math import inf
from traceback import format_exception_only

import msgspec

from headway.core.base import Cause, Reason, format_duration
from headway.core.consumer import Due, PluginFailed, Session, Shares, Subscription, due_of, is_patient, patience_for
from headway.core.policy import (
    ACTIONS,
    ANY_LUMP_BYTES,
    METERS,
    PAUSES,
    Action,
    ActionKind,
    Decision,
    DecisionKind,
    Figures,
    Holding,
    Look,
    Move,
    Policy,
    Reading,
    Sample,
    Verdict,
    VerdictBook,
    judge,
    judge_pressure,
    policy_for_any,
    try_out,
)
from headway.core.queue import queue_behind
from headway.core.routing import Advisories, Registry

# -- plugged -----------------------------------------------------------------------------------------------------------
#
# Plugged-in meters and actions, as the governor calls them: meters before a look, actions when their rules fire. A
# plugged-in condition is a meter here, too.
#
# A plug-in gets plain values and returns plain values, so it cannot reach into the broker. An exception that it raises
# does no harm: a meter that fails has no value, and an action that fails does nothing. Failures are counted. The first
# failure of each plug-in is logged (``PluginFailed``).


MOVES_MAX = 16
TEXT_CHARS_MAX = 300


class Plugged:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.failures: Counter[str] = Counter()
        """Exceptions raised, by the plug-in's name."""

    def measure(self, subscription: Subscription, sample: Sample, names: Sequence[str], now: float, wall_s: float
                ) -> Sample:
        """Returns the sample with the values of these meters. A meter without a value is left out."""
        look = _look(subscription, sample, wall_s)
        values = {}
        for name in names:
            plugged = METERS[name].plugged
            assert plugged is not None
            try:
                value = plugged.measure(look, now)
                if value is not None:
                    values[name] = _number(value)
            except Exception as error:  # noqa: BLE001 - a plug-in may raise anything
                self._failed(METERS[name].condition or name, error)
        return msgspec.structs.replace(sample, plugged=values)

    def ask(self, subscription: Subscription, decision: Decision, sample: Sample, now: float, wall_s: float
            ) -> Decision:
        """Returns the decision with the moves that the plugged-in action of its rule answers."""
        action = decision.action
        plugged = ACTIONS[action.name].plugged
        assert plugged is not None
        try:
            shown = msgspec.structs.replace(sample, plugged=dict(sample.plugged or ()))
            answer = plugged.act(_look(subscription, shown, wall_s), dict(action.options), now)
            moves = _moves(answer, action)
        except Exception as error:  # noqa: BLE001 - likewise
            self._failed(action.name, error)
            return msgspec.structs.replace(decision, failed=_one_line(error))
        return msgspec.structs.replace(decision, moves=tuple(move for move in moves if _applies(move, subscription)))

    def _failed(self, name: str, error: Exception) -> None:
        self.failures[name] += 1
        if self.failures[name] == 1:
            self._registry.effects.append(PluginFailed(name, error))


def _look(subscription: Subscription, sample: Sample, wall_s: float) -> Look:
    session = subscription.session
    return Look(
        sample=sample, client=session.client, filter=subscription.filter, listener=session.listener,
        protocol=session.protocol, user=session.username or "", durable=subscription.durable,
        connected=session.connected, policy=subscription.case.policy.name, wall_s=wall_s,
    )  # fmt: skip


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError(f"measure() returned {value!r}, which is neither a finite number nor None")
    return value


def _moves(answer: object, action: Action) -> Sequence[Move]:
    if not isinstance(answer, list | tuple) or not all(isinstance(move, Move) for move in answer):
        raise TypeError(f"act() returned {answer!r}, which is not a list of moves")
    if len(answer) > MOVES_MAX:
        raise ValueError(f"act() returned {len(answer)} moves; {MOVES_MAX} at most")
    for move in answer:
        if move.action is None:
            msgspec.json.encode(move.details)  # fails now rather than when it is sent
        elif move.action.needs_state and not action.conflates:
            raise ValueError(f"{action.name} conflates, and does not say conflates = True")
    return answer


def _applies(move: Move, subscription: Subscription) -> bool:
    """Tells whether a move applies. As with built-in actions, a consumer that is away cannot be cut, and a durable
    subscription is deleted only where the move says so."""
    if move.action is None:
        return True
    if move.action.kind is ActionKind.DELETE_SUBSCRIPTION:
        return move.action.durable or not subscription.durable
    return subscription.session.connected or not move.action.kind.needs_connection


def _one_line(error: Exception) -> str:
    """Returns the error as one line of text."""
    text = " ".join("".join(format_exception_only(error)).split())
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]}…"


# -- sampling ----------------------------------------------------------------------------------------------------------
#
# Sampling turns a subscription's cursor, session and outlet into the plain numbers that policies judge.


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


# -- watchlist ---------------------------------------------------------------------------------------------------------
#
# The watchlist is the consumers that the governor looks at, and the lateness of its looks.
#
# A consumer is watched from the time it falls behind until it has caught up and all its rules have stepped back.


LOOKS_MAX = 256


class Watchlist:
    def __init__(self, registry: Registry) -> None:
        self._watched = registry.watched
        self.late_s = 0.0
        """The sum of seconds by which sweeps came too late. The broker caused them, so they are taken off the clocks of
        rules (``PolicyState.keep_up``)."""

    def add(self, subscription: Subscription) -> None:
        if subscription not in self._watched:
            self._watched[subscription] = None
            subscription.case.state.late_s = self.late_s

    def remove(self, subscription: Subscription) -> None:
        """Takes a consumer off the list. One of a queue gets onto it again when records wait that nobody can take."""
        self._watched.pop(subscription, None)
        if (queue := queue_behind(subscription)) is not None:
            queue.members.not_watched(subscription)

    def first(self) -> list[Subscription]:
        """Returns the consumers whose last look was longest ago, ``LOOKS_MAX`` at most."""
        return list(islice(self._watched, LOOKS_MAX))

    def move_to_end(self, subscription: Subscription) -> None:
        self._watched[subscription] = self._watched.pop(subscription)


# -- glances -----------------------------------------------------------------------------------------------------------
#
# Glances find consumers that have stopped to acknowledge though nothing waits for them.
#
# Theory of operation. The governor looks at consumers that lag. One that holds more and more deliveries without an
# acknowledgement may have no lag: its window is wide, or others of its queue take what comes. So each sweep glances at
# ``GLANCES`` more, one after the other, and goes round at most once in ``ROUND_S``. A glance takes 2 us: it learns what
# the consumer usually holds (core/policy/meters/meter.py). Whoever is late gets onto the watchlist, and its policy
# judges it. No glance is at consumers whose policy does not compare ``unacknowledged_time``.


GLANCES = 128
ROUND_S = 1.0
OF_A_SESSION = 64
"""So many subscriptions of one session."""
COPIED_A_GLANCE = 64
"""To note so many sessions for a round takes as long as a glance."""
LATE_S = 4.0
"""A consumer that is late for less than this, or three of its usual pauses, is not watched yet."""


class Glances:
    """The rounds through all sessions."""

    def __init__(self, registry: Registry, watchlist: Watchlist) -> None:
        self._registry, self._watchlist = registry, watchlist
        self._round: Iterator[Session] = iter(())
        self._begun_s = -inf

    def go_on(self, now: float) -> None:
        """Makes the glances of one sweep."""
        left = GLANCES
        while left > 0:
            session = next(self._round, None)
            if session is None:
                if now - self._begun_s < ROUND_S:
                    return
                sessions = list(self._registry.sessions.values())
                self._begun_s, self._round = now, iter(sessions)
                left -= 1 + len(sessions) // COPIED_A_GLANCE
                continue
            left -= 1
            if not session.connected:
                continue
            some = list(islice(session.subscriptions.values(), OF_A_SESSION))
            left -= len(some)
            for subscription in some:
                self._glance(subscription, now)

    def _glance(self, subscription: Subscription, now: float) -> None:
        if subscription in self._registry.watched or not minds_silence(self._registry, subscription):
            return
        holding = hold(subscription, now)
        if holding is None or is_patient(subscription):
            return
        if now - holding.late_since(inf) >= max(LATE_S, PAUSES * holding.usual_pause_s):
            self._watchlist.add(subscription)


# -- trials ------------------------------------------------------------------------------------------------------------
#
# Trials of all consumers: finds the trials that cover a consumer, lets them judge it, and keeps their verdicts.
#
# A consumer gets its trials at the first look at it, and keeps them until the configuration is reloaded. A look costs
# one evaluation more for each of them, and nothing if there are none.


NO_BOOK = VerdictBook()
"""The book of a trial without a verdict."""


class Trials:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._books: dict[str, VerdictBook] = {}
        """The verdicts of each trial by its name. Trials share the numbers of verdicts."""
        self.made = 0
        """Verdicts so far, including those that are no longer in a book."""

    def assign(self, subscription: Subscription, late_s: float) -> None:
        """Gives a consumer the trials that cover it. ``late_s``: the sum of the broker's lateness."""
        case = subscription.case
        trials = case.tried = self._registry.trials
        names = subscription.reader.names(subscription)
        durable, listener = subscription.durable, subscription.session.listener
        covering = (trial for trial in trials if policy_for_any((trial,), names, durable, listener) is trial)
        case.trials = try_out(covering, case.trials, late_s)

    def look(self, subscription: Subscription, sample: Sample, now: float, late_s: float) -> None:
        """Lets the consumer's trials judge the sample."""
        session = subscription.session
        for trial in subscription.case.trials:
            trial.state.keyed = subscription.keyed
            for decision in trial.evaluate(sample, now, late_s, connected=session.connected):
                self.made += 1
                verdict = judge(
                    decision, with_peer(sample, subscription), number=self.made, now=now,
                    wall_s=now + self._registry.wall_offset_s, client=session.client, filter=subscription.filter,
                    policy=trial.policy.name, listener=session.listener,
                )  # fmt: skip
                self._record(subscription, trial.policy, verdict)

    def _record(self, subscription: Subscription, policy: Policy, verdict: Verdict) -> None:
        book = self._books.setdefault(policy.name, VerdictBook())
        book.add(verdict)
        book.made += 1
        self._registry.observer.trial_verdict(verdict, subscription, policy)

    def keep_only(self, trials: tuple[Policy, ...]) -> None:
        """Forgets the verdicts of trials of other names."""
        names = {trial.name for trial in trials}
        self._books = {name: book for name, book in self._books.items() if name in names}

    # -- what they said ---------------------------------------------------------------------------------------------

    def made_by(self, trial: str) -> int:
        """Returns how many verdicts a trial has made."""
        return self._books.get(trial, NO_BOOK).made

    def of(self, client: str) -> list[Verdict]:
        """Returns the verdicts of all trials on one client, the newest first."""
        found = [verdict for book in self._books.values() for verdict in book.of(client)]
        return sorted(found, key=lambda verdict: -verdict.number)

    def after(self, number: int, count: int) -> list[Verdict]:
        """Returns the verdicts of all trials with higher numbers than this one, the oldest first."""
        found = [verdict for book in self._books.values() for verdict in book if verdict.number > number]
        return sorted(found, key=lambda verdict: verdict.number)[:count]

    def findings(self, trial: str) -> int:
        """Returns how many clients the kept verdicts of a trial are about."""
        return len({one.client for one in self._books.get(trial, NO_BOOK) if one.kind is DecisionKind.FIRE})


# -- verdict log -------------------------------------------------------------------------------------------------------
#
# The verdict log stores, reports and announces each verdict, and marks its consumer as slow or as recovered. What an
# operator asked for is no sign of either.


class VerdictLog:
    def __init__(self, registry: Registry, watchlist: Watchlist, advisories: Advisories) -> None:
        self._registry = registry
        self._watchlist = watchlist
        self._advisories = advisories
        self.book = VerdictBook()

    def record(self, subscription: Subscription, verdict: Verdict, now: float) -> None:
        self.book.add(verdict, subscription.session.username or "")
        subscription.case.last_verdict = verdict
        fires, asked = verdict.kind is DecisionKind.FIRE, verdict.cause is Cause.OPERATOR
        if not asked:  # the lake is about policies
            self._registry.observer.verdict(verdict, subscription)
        if fires and not asked and subscription.case.meter.mark_slow(now):
            self._registry.totals.count_slow(subscription, 1)
            self._watchlist.add(subscription)  # until it has recovered
        elif not fires:
            self.recover(subscription, now)
        told = {
            "filter": verdict.filter, "policy": verdict.policy, "rule": verdict.rule, "action": verdict.action.word,
            "reason": verdict.reason, "cause": verdict.cause, "enforced": verdict.enforced, "text": verdict.text,
        }  # fmt: skip
        if asked:
            self._advisories.tell("operator", verdict.client, now, **told)
        else:
            self._advisories.tell("slow" if fires else "recovered", verdict.client, now, **told)

    def recover(self, subscription: Subscription, now: float) -> None:
        """Stops counting the consumer as slow, if it has recovered."""
        if subscription.case.recover(now):
            self._registry.totals.count_slow(subscription, -1)


# -- patience ----------------------------------------------------------------------------------------------------------
#
# The end of patience: a job that its client held for longer than it asked for goes back to its queue.
#
# While the patience lasts, the meters leave it out (``core/policy/meters/meter.py``, rule 8). When it is over, the
# records that were sent so long ago are returned, as the action ``return`` does it, whatever the policy says: others
# get them, and the consumer gets no more before it has settled them.


class PatienceEnd:
    """Returns what consumers have held beyond their patience."""

    def __init__(self, registry: Registry, verdicts: VerdictLog, advisories: Advisories) -> None:
        self._registry = registry
        self._verdicts = verdicts
        self._advisories = advisories

    def look(self, subscription: Subscription, sample: Sample, now: float) -> None:
        """Returns the records that the consumer has held for longer than the patience for them. Called at each look.
        """
        queue = queue_behind(subscription)
        if not is_patient(subscription) or sample.ack_age <= 0 or queue is None:
            return
        late = queue.unsettled.requeue_late(subscription, now)
        if not late:
            return
        returned, patience_s = len(late), patience_for(subscription, late[0])
        asked = "it asked for" if patience_s == subscription.patience_s else "its message asked for"
        held_s = patience_s + sample.ack_age
        verdict = judge_pressure(
            Reason.ACK_AGE, ActionKind.RETURN,
            f"{returned} of its records held beyond the {format_duration(patience_s)} of patience {asked}",
            msgspec.structs.replace(sample, ack_age=held_s),
            number=self._verdicts.book.next_number(), now=now, wall_s=now + self._registry.wall_offset_s,
            client=subscription.session.client, filter=subscription.filter, listener=subscription.session.listener,
            readings=(Reading("ack_age", held_s, ">", patience_s),),
        )  # fmt: skip
        self._verdicts.record(subscription, verdict, now)
        self._advisories.tell("returned", subscription.session.client, now, filter=subscription.filter,
                              records=returned)  # fmt: skip
