"""The governor looks at the consumers that lag, judges them by their policies, and lets the verdicts be enforced.

Theory of operation. The governor looks only at *watched* consumers (``watching.py``). A sweep looks at ``LOOKS_MAX``
of them, and the next sweep goes on with the others. A turn makes ``LOOKS_LEAST`` of these looks, or
some more if it sends much, and the next turns make the others. So healthy clients wait for a few looks and not for a
sweep. Ten thousand stuck consumers cost no more
than a few hundred do. A look takes a sample, lets the policy decide, and enforces the decisions. Then it renews the
lasting actions.

A sweep that comes late shows that the broker's own loop was slow. Then the sweep judges no consumer. It records the
lateness: meters leave it out, and the clocks of rules are moved by it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import partial
from math import inf

import msgspec

from headway.core.base import WorkSteps
from headway.core.clients import Admission, DurableMetadata, Ending, Queues, Starts
from headway.core.consumer import CloseConsumer, Outlet, Session, Shares, Subscription
from headway.core.delivery import start_conflating
from headway.core.governance.memory import Relief, spill_of, why_unreadable
from headway.core.governance.moves import Cutter, discard, stop_discarding
from headway.core.governance.watching import (
    Glances,
    PatienceEnd,
    Plugged,
    Trials,
    VerdictLog,
    Watchlist,
    observe,
    with_peer,
)
from headway.core.log import State, StateTerms
from headway.core.message import compile_key
from headway.core.policy import (
    Action,
    ActionKind,
    Decision,
    DecisionKind,
    FlapControl,
    Move,
    Policy,
    Sample,
    Verdict,
    VerdictBook,
    judge,
    replace_policy,
)
from headway.core.queue import queue_behind, queue_of
from headway.core.routing import Advisories, Registry, SessionRound

# -- enforcement -------------------------------------------------------------------------------------------------------
#
# Enforcement carries out the actions of policies, and undoes them when their rules step back.
#
# The moves of cursors are in ``moves.py``. This file chooses the move for an action, and does the rest: gates,
# spilling, closing, deleting.


NEXT_TURN_S = 0.01
"""When those are cut for whom the cuts of a turn did not suffice."""


class Enforcer:
    def __init__(
        self, registry: Registry, ending: Ending, queues: Queues, metadata: DurableMetadata, advisories: Advisories,
        cutter: Cutter,
    ) -> None:  # fmt: skip
        self._registry = registry
        self._ending = ending
        self._queues = queues
        self._metadata = metadata
        self._advisories = advisories
        self._cutter = cutter

    def act(self, subscription: Subscription, action: Action, verdict: Verdict, now: float) -> None:
        """Carries out the action of a rule that has fired."""
        match action.kind:
            case ActionKind.NOTIFY | ActionKind.RETURN:
                return  # the verdict is the notification; ``go_on`` returns records at each look
            case ActionKind.CONFLATE:
                start_conflating(subscription, now)
            case ActionKind.CLOSE_CONSUMER:
                self._close(subscription, verdict, "close_consumer", now)
                outlet = subscription.session.outlet
                if not outlet.closes_consumers:
                    self._end_later(subscription, outlet, verdict, now + action.within_s)
            case ActionKind.DISCONNECT:
                self._cutter.cut(subscription, verdict.reason, verdict.text, now, connection=action.connection)
            case ActionKind.DELETE_SUBSCRIPTION if subscription.channel is not subscription.session.channel:
                if subscription.reader.queue is not None:
                    self._delete_queue(subscription, verdict, now)
                elif subscription.request.options.lease_s is not None:  # its client learns it from that
                    self._close(subscription, verdict, "deleted", now, deletes=True)
                else:  # as of a queue, so that clients are told in the same way
                    whole = not subscription.session.outlet.closes_consumers
                    self._cutter.cut(subscription, verdict.reason, verdict.text, now, connection=whole)
                    self._advisories.tell("deleted", verdict.client, now, filter=verdict.filter, text=verdict.text)
            case ActionKind.DELETE_SUBSCRIPTION:
                self._cutter.count(subscription)
                self._ending.end(subscription, verdict.reason, now)
                if subscription.session.outlet.is_one_stream:
                    self._cutter.end_stream(subscription.session, verdict.reason, verdict.text, now)
                elif not subscription.session.connected:
                    self._metadata.deleted("client", verdict.client, verdict.reason, verdict.text)
                elif _would_never_know(subscription):
                    self._cutter.disconnect(subscription.session, verdict.reason, verdict.text, now)
                self._advisories.tell("deleted", verdict.client, now, filter=verdict.filter, text=verdict.text)
            case _:
                self.go_on(subscription, action, now)

    def go_on(self, subscription: Subscription, action: Action, now: float) -> None:
        """Carries out a lasting action again, at each look while its rule is active: more records may have come."""
        match action.kind:
            case ActionKind.CONFLATE:
                start_conflating(subscription, now)  # what waited at first may have been older than its state
            case ActionKind.DISCARD:
                discard(subscription, action, self._registry, now)
            case ActionKind.OFFLINE:
                self._spill(subscription, now)
            case ActionKind.BLOCK_PUBLISHERS:
                self._gate(subscription, now)
            case ActionKind.RETURN:
                self._return(subscription, action, now)

    def undo(self, subscription: Subscription, action: Action, now: float) -> None:
        """Undoes an action when its rule steps back, if there is something to undo."""
        match action.kind:
            case ActionKind.CONFLATE:
                subscription.conflation.stop(subscription)
            case ActionKind.DISCARD:
                stop_discarding(subscription, action, self._registry, now)
            case ActionKind.BLOCK_PUBLISHERS:
                self._ending.open_gate(subscription, now)

    def _close(
        self, subscription: Subscription, verdict: Verdict, kind: str, now: float, *, deletes: bool = False
    ) -> None:
        self._registry.effects.append(CloseConsumer(subscription, verdict, deletes))
        self._advisories.tell(kind, verdict.client, now, filter=verdict.filter, text=verdict.text)

    def _end_later(self, subscription: Subscription, outlet: Outlet, verdict: Verdict, when_s: float) -> None:
        """Disconnects a client that an advisory alone has asked to close its consumer, unless it has done so by then,
        or the consumer has another policy."""
        policy = subscription.case.policy
        self._registry.timers.at(when_s, partial(self._end_asked, subscription, outlet, verdict, policy))

    def _end_asked(
        self, subscription: Subscription, outlet: Outlet, verdict: Verdict, policy: Policy, now: float
    ) -> None:
        if subscription.ended or subscription.session.outlet is not outlet or subscription.case.policy is not policy:
            return
        if self._cutter.cuts_left > 0:
            self._cutter.cut(subscription, verdict.reason, verdict.text, now, connection=True)
        else:
            self._end_later(subscription, outlet, verdict, now + NEXT_TURN_S)

    def _gate(self, subscription: Subscription, now: float) -> None:
        """Makes publishers wait for this consumer while it is connected."""
        feed = subscription.feed
        if not subscription.session.connected or subscription.reader.reads_itself:
            return  # the feed of a consumer that reads the archive has no publishers
        feed.gates.setdefault(subscription, now)
        subscription.session.gates[subscription] = None
        self._registry.backpressure.gate_shut(feed, now)

    def _spill(self, subscription: Subscription, now: float) -> None:
        """Spills the chunks that the consumer still needs, once for all consumers that need them."""
        spill = spill_of(subscription.feed.lane, subscription.cursor.lag_bytes, self._registry.journaled, now)
        if spill is not None:
            self._registry.effects.append(spill)

    def _return(self, subscription: Subscription, action: Action, now: float) -> None:
        """Gives records whose acknowledgement takes too long to other members of the queue."""
        queue = queue_behind(subscription)
        if queue is None:
            return
        returned = len(queue.unsettled.requeue_late(subscription, now, action.older_s))
        if returned:
            self._advisories.tell("returned", subscription.session.client, now, filter=subscription.filter,
                                  records=returned)  # fmt: skip

    def _delete_queue(self, subscription: Subscription, verdict: Verdict, now: float) -> None:
        """Cuts the consumer, and deletes its queue unless others consume it."""
        queue = queue_of(subscription.reader.queue)
        self._cutter.cut(subscription, verdict.reason, verdict.text, now)
        if subscription in queue.placeholder.here:
            self._metadata.deleted("queue", queue.name, verdict.reason, verdict.text)
        if not queue.members.any_consumer:
            self._queues.delete(queue, now)
        self._advisories.tell("deleted", verdict.client, now, filter=verdict.filter, text=verdict.text)


def _would_never_know(subscription: Subscription) -> bool:
    """Tells whether a client that stays connected would wait for ever for what comes no more, once this subscription
    has been deleted: neither its protocol nor the end of a lease would tell it."""
    outlet = subscription.session.outlet
    return not (outlet.closes_consumers or outlet.told_of_ends) and subscription.request.options.lease_s is None


# -- governor ----------------------------------------------------------------------------------------------------------


SWEEP_S = 0.2
LATE_S = 0.25
"""A sweep that comes this much too late is the broker's own fault."""
LOOKS_AT_ONCE, LOOKS_LEAST = 16, 4
"""How many looks one turn makes, at most and at least. A look takes a tenth of a millisecond, and all clients wait."""
BYTES_A_LOOK = 256 * 1024
"""Bytes that are sent in the time of a look. A turn that sends more makes more looks: there are fewer such turns."""


class Governor:
    def __init__(
        self, registry: Registry, ending: Ending, admission: Admission, queues: Queues, metadata: DurableMetadata,
        advisories: Advisories, flap: FlapControl, *, sweep_s: float = SWEEP_S, late_s: float = LATE_S,
    ) -> None:  # fmt: skip
        self._sweep_s = sweep_s
        self.tick_s = min(sweep_s, SWEEP_S)
        """Time between two ticks, which run timers as well. A sweep may be a matter of minutes."""
        self._late_after_s = late_s
        self._registry = registry
        self._advisories = advisories
        self.plugged = Plugged(registry)
        self.trials = Trials(registry)
        self.watchlist = Watchlist(registry)
        self._glances = Glances(registry, self.watchlist)
        self._verdicts = VerdictLog(registry, self.watchlist, advisories)
        self._patience_end = PatienceEnd(registry, self._verdicts, advisories)
        self.cutter = Cutter(registry, admission, queues, advisories, flap)
        self._enforcer = Enforcer(registry, ending, queues, metadata, advisories, self.cutter)
        self.relief = Relief(registry, ending, self.watchlist, self._verdicts, self.cutter)
        self._last_tick_s = inf
        """When a sweep could have begun last; ``inf``: never."""
        self._next_sweep_s = 0.0
        self._due: deque[Subscription] = deque()
        """The consumers that this sweep has not looked at yet."""
        self._shares: Shares = {}

    @property
    def book(self) -> VerdictBook:
        return self._verdicts.book

    def record(self, subscription: Subscription, verdict: Verdict, now: float) -> None:
        """Keeps and tells a verdict that was made elsewhere."""
        self._verdicts.record(subscription, verdict, now)

    @property
    def late_s(self) -> float:
        return self.watchlist.late_s

    # -- looking ----------------------------------------------------------------------------------------------------

    def sweep(self, now: float, late_s: float = 0.0) -> Shares:
        """Begins a sweep of the watched consumers, if it is time for one, and makes its first looks; ``go_on`` makes
        the others. Asked in every tick. Returns the shares of lanes that were computed. ``late_s`` is the loop's known
        lateness since the last tick."""
        late = max(late_s, now - self._last_tick_s - self.tick_s)
        self._last_tick_s = now
        self._shares = {}
        if late > self._late_after_s:
            self._due.clear()
            self.watchlist.late_s += late
            self._registry.lateness.add(now, late)
            return self._shares
        self._registry.came_back.clear()
        if now < self._next_sweep_s:
            return self._shares
        if self._sweep_s > self.tick_s:
            self._next_sweep_s = now + self._sweep_s - self.tick_s / 2
        self._due.clear()  # whoever was not looked at comes first in the next sweep
        self._glances.go_on(now)
        self._due.extend(self.watchlist.first())
        self.go_on(now, 0)
        return self._shares

    @property
    def sweeping(self) -> bool:
        """Tells whether consumers are left that this sweep has to look at."""
        return bool(self._due)

    def go_on(self, now: float, sent_bytes: int) -> None:
        """Makes the next looks of the sweep, and enforces the decisions of the consumers' policies. ``sent_bytes``: so
        much was offered to subscriptions in this turn; what queues hand out does not count."""
        registry = self._registry
        for _ in range(min(LOOKS_AT_ONCE, LOOKS_LEAST + sent_bytes // BYTES_A_LOOK, len(self._due))):
            if self.cutter.cuts_left <= 0:
                return  # the others are looked at in the next turn
            subscription = self._due.popleft()
            if subscription.ended or subscription not in registry.watched:
                continue
            self.watchlist.move_to_end(subscription)
            if subscription.gone or subscription.reader.queue in registry.came_back:
                continue  # it has ended, or its queue grew only by records that were requeued
            try:
                self._look(subscription, now, self._shares)
            except OSError as error:
                self.relief.evict_unreadable(subscription, why_unreadable(error), now)

    def _look(self, subscription: Subscription, now: float, shares: Shares) -> None:
        self.keep_policy_new(subscription, now)
        if subscription.ended:
            return
        case = subscription.case
        case.state.keep_up(self.late_s)
        case.state.keyed = subscription.keyed
        sample = observe(self._registry, subscription, now, shares)
        if case.tried is not self._registry.trials:
            self.trials.assign(subscription, self.late_s)
        plugged = case.plugged if case.trials else case.policy.plugged
        if plugged:
            sample = self.plugged.measure(subscription, sample, plugged, now, now + self._registry.wall_offset_s)
        case.last_sample = sample
        self._registry.observer.looked(subscription, sample, now)
        if case.trials:
            self.trials.look(subscription, sample, now, self.late_s)
        for decision in case.evaluate(sample, now):
            self._decide(subscription, decision, with_peer(sample, subscription), now)
            if subscription.ended:
                return
        self._verdicts.recover(subscription, now)
        self._patience_end.look(subscription, sample, now)
        if self.relief.enforce_shares(subscription, now):
            return
        for action in case.lasting():
            self._enforcer.go_on(subscription, action, now)
        self._announce_gap(subscription, now)
        self._announce_offline(subscription, now)
        if case.calm and not sample.in_flight and not subscription.has_more:
            case.meter.caught_up(now)
            # A lagging consumer has a blocked outlet and stays watched, because no turn reports again that it lags.
            if subscription not in subscription.session.lagging:
                self.watchlist.remove(subscription)

    # -- deciding ---------------------------------------------------------------------------------------------------

    def _decide(self, subscription: Subscription, decision: Decision, sample: Sample, now: float) -> None:
        session, action = subscription.session, decision.action
        wall_s = now + self._registry.wall_offset_s
        if not session.connected and action.kind.needs_connection:
            return  # it has disconnected already
        spares = action.kind is ActionKind.DELETE_SUBSCRIPTION and not action.durable
        if spares and subscription.durable and decision.enforced:  # the rule has to say ``durable`` for that
            decision = msgspec.structs.replace(decision, enforced=False, spared=True)
        if action.kind is ActionKind.PLUGIN and decision.kind is DecisionKind.FIRE and decision.enforced:
            decision = self.plugged.ask(subscription, decision, sample, now, wall_s)
            subscription.case.state.hold(decision.rule, decision.moves or ())
        verdict = judge(
            decision, sample, number=self.book.next_number(), now=now, wall_s=wall_s, client=session.client,
            filter=subscription.filter, policy=subscription.case.policy.name, listener=session.listener,
        )  # fmt: skip
        self._verdicts.record(subscription, verdict, now)
        if not decision.enforced:
            return
        for undone in decision.undone:
            self._enforcer.undo(subscription, undone, now)
        if decision.kind is DecisionKind.FIRE:
            for move in (decision.moves or ()) if action.kind is ActionKind.PLUGIN else (Move(action),):
                self._move(subscription, move, verdict, now)

    def _move(self, subscription: Subscription, move: Move, verdict: Verdict, now: float) -> None:
        if move.action is not None:
            if not subscription.ended and not subscription.gone:
                self._enforcer.act(subscription, move.action, verdict, now)
        else:
            self._advisories.tell("told", verdict.client, now, filter=verdict.filter, action=verdict.action.word,
                                  text=move.text, details=move.details)  # fmt: skip

    def keep_policy_new(self, subscription: Subscription, now: float) -> None:
        """Applies the policy that a consumer has after a reload of other policies, if it was not done yet."""
        if subscription.case.policies_version != self._registry.policies_version:
            self.change_policy(subscription, now)

    def change_policy(self, subscription: Subscription, now: float) -> None:
        """Applies the policy that covers a consumer now, if it is another one."""
        case, asked = subscription.case, subscription.request.options.policy or ""
        policy = self._registry.policy_named(asked) or self._registry.policy_of(subscription)
        case.tried = None
        case.policies_version = self._registry.policies_version
        if policy == case.policy:
            return
        if case.state.begun:
            case.state.keep_up(self.late_s)
            sample = observe(self._registry, subscription, now, {})
            state, decisions = replace_policy(case.policy, case.state, policy, sample, now)
            for decision in decisions:
                self._decide(subscription, decision, sample, now)
            state.late_s = self.late_s
            case.state = state
        case.policy = policy
        self.watchlist.add(subscription)

    # -- advisories -------------------------------------------------------------------------------------------------

    def _announce_gap(self, subscription: Subscription, now: float) -> None:
        """Announces, at most once a second, that records were left out for this consumer."""
        gaps = subscription.counters.gap_records
        records = subscription.case.gap_to_tell(gaps.total(), now)
        if records:
            self._advisories.tell("gap", subscription.session.client, now, filter=subscription.filter, records=records,
                                  total=dict(gaps))

    def _announce_offline(self, subscription: Subscription, now: float) -> None:
        """Announces that the consumer has begun, or has stopped, to read from disk."""
        offline = subscription.cursor.offline
        if subscription.case.offline_to_tell(offline):
            self._advisories.tell("offlined" if offline else "online", subscription.session.client, now,
                                  filter=subscription.filter, lag_bytes=subscription.lag_bytes)


# -- new policies ------------------------------------------------------------------------------------------------------
#
# New policies: after a reload every consumer gets the policy that covers it now, over the turns to come.
#
# A consumer is judged by its new policy from the next look at it on, at the latest: the governor changes it before the
# look. What is left for the round is everybody at whom nobody looks: those who have caught up. They get the states that
# their new policies need, and are watched where a new rule minds what they have not acknowledged. Who is conflated by a
# ``[[topic]]``, or is so no more, learns of it in the round, too.


POLICY_WORK = 4
"""Work of choosing the policy of a consumer anew, and of finding its state."""
CHANGE_WORK = 20
"""Work of giving it another policy: rules of the old one step back, by a sample."""
DECLARE_WORK = 8
NAMES_PER_WORK = 4
"""How many of a queue's names are compared with policies in the time of one unit of work."""


class NewPolicies:
    def __init__(self, registry: Registry, governor: Governor, starts: Starts) -> None:
        self._registry = registry
        self._governor = governor
        self._starts = starts
        self.round = SessionRound(registry, self._visit)

    def apply(self, now: float) -> None:
        """Gives every consumer the policy and the state that it has now."""
        self.round.begin(now)

    def declare(self, terms: StateTerms) -> None:
        """Begins a state, or changes its terms."""
        registry = self._registry
        state = registry.router.declared_state(terms.filter, terms.key)
        if state is None:
            since = registry.sequence
            state = State(
                terms.filter, compile_key(terms.key), registry.pools[""], since_sequence=since, declared=True
            )  # fmt: skip
            registry.router.add_state(state)
        elif self._stands(terms):
            return
        state.agree(terms)
        registry.router.terms_changed(state)

    def declare_more(self, states: Iterable[StateTerms], now: float) -> None:
        """Begins the states that are not there yet, and changes the terms of the others. ``states`` are all that the
        configuration has now. Consumers get them in the round that follows."""
        states = list(states)
        changed = [terms for terms in states if not self._stands(terms)]
        if changed:
            self._registry.rounds.begin(self._declare(changed, states), now)
        elif self._registry.router.put_in_order(states):
            self.round.begin(now)

    def _stands(self, terms: StateTerms) -> bool:
        state = self._registry.router.declared_state(terms.filter, terms.key)
        return state is not None and state.terms == terms

    def _declare(self, changed: list[StateTerms], states: list[StateTerms]) -> WorkSteps:
        for terms in changed:
            self.declare(terms)
            yield DECLARE_WORK
        self._registry.router.put_in_order(states)
        self.round.begin(self._registry.rounds.now)

    def _visit(self, session: Session) -> WorkSteps:
        for subscription in list(session.subscriptions.values()):
            if not subscription.ended:
                yield 1 + len(subscription.reader.names(subscription)) // NAMES_PER_WORK
                before = subscription.case.policy
                self._governor.keep_policy_new(subscription, self._registry.rounds.now)
                if subscription.case.policy is not before:
                    yield CHANGE_WORK
                if not subscription.ended and self._starts.conflate_anew(subscription, self._registry.rounds.now):
                    yield CHANGE_WORK
            yield POLICY_WORK
