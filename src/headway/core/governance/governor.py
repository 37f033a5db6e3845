"""The governor: looks at the consumers that lag, judges them by their policies, and acts.

Theory of operation. Only *watched* consumers are looked at: those that fell behind, until they have caught up and all
their rules have stepped back. A sweep looks at no more than ``LOOKS_MAX`` of them and goes on with the others at the
next, so ten thousand stuck consumers cost a turn no more than a few hundred do.

Cutting somebody takes far longer than looking at him: no more than ``CUTS_MAX`` are cut in a turn, and the others in
those that follow.

When the sweep itself comes late, the broker's own loop was at fault: the lateness is put on record (meters leave it
out), running clocks are moved, and nobody is judged in that sweep.
"""

from __future__ import annotations

from itertools import islice

import msgspec

from headway.core.base import Reason, format_size
from headway.core.clients import Admission, Ending, Keeping, Queues
from headway.core.consumer import CloseChannel, CloseConsumer, Session, Shares, Subscription
from headway.core.delivery import start_conflating
from headway.core.governance.moves import discard, stop_discarding
from headway.core.governance.plugged import Plugged
from headway.core.governance.pressure import gives_way, over_share, spill_of
from headway.core.governance.sampling import observe, with_peer
from headway.core.governance.write_off import write_off
from headway.core.log import GRACE_S
from headway.core.policy import (
    Action,
    ActionKind,
    Decision,
    DecisionKind,
    FlapControl,
    Move,
    Reading,
    Sample,
    Verdict,
    VerdictBook,
    judge,
    judge_pressure,
    replace_policy,
)
from headway.core.queue import queue_of
from headway.core.routing import Advisories, Registry

SWEEP_S = 0.2
LATE_S = 0.25
"""A sweep that comes this much too late is the broker's own fault."""
LOOKS_MAX = 256
CUTS_MAX = 32
UNSENT_BYTES = 32 * 1024
"""Less than this written for one client alone is no reason to cut it."""


class Governor:
    def __init__(
        self, registry: Registry, ending: Ending, admission: Admission, queues: Queues, keeping: Keeping,
        advisories: Advisories, flap: FlapControl, *, sweep_s: float = SWEEP_S, late_s: float = LATE_S,
    ) -> None:  # fmt: skip
        self._sweep_s = sweep_s
        self._late_after_s = late_s
        self._registry = registry
        self._ending = ending
        self._admission = admission
        self._queues = queues
        self._keeping = keeping
        self._advisories = advisories
        self._flap = flap
        self.plugged = Plugged(registry)
        self.book = VerdictBook()
        self.wall_offset_s = 0.0
        """Epoch seconds minus the broker's clock."""
        self.late_s = 0.0
        self._last_sweep_s: float | None = None
        self.cuts_left = CUTS_MAX
        """So many more may be cut in this turn."""

    # -- looking ----------------------------------------------------------------------------------------------------

    def watch(self, subscription: Subscription, now: float) -> None:
        """The consumer has fallen behind."""
        if subscription not in self._registry.watched:
            self._registry.watched[subscription] = None
            subscription.case.state.late_s = self.late_s

    def sweep(self, now: float, late_s: float = 0.0) -> Shares:
        """Look at watched consumers and act on what their policies decide. ``late_s``: by how much the loop was late
        since the last one, as far as is known. Returns the shares it had to work out."""
        registry = self._registry
        shares: Shares = {}
        late = late_s if self._last_sweep_s is None else max(late_s, now - self._last_sweep_s - self._sweep_s)
        self._last_sweep_s = now
        if late > self._late_after_s:
            self.late_s += late
            registry.lateness.add(now, late)
            return shares
        registry.came_back.clear()
        for subscription in list(islice(registry.watched, LOOKS_MAX)):
            if self.cuts_left <= 0:
                break
            if subscription.ended:
                continue
            registry.watched.pop(subscription)
            registry.watched[subscription] = None
            if subscription.gone or subscription.reader.queue in registry.came_back:
                continue  # nobody is left to be judged; or what another had to give back is nothing against this one
            try:
                self._look(subscription, now, shares)
            except OSError as error:
                why = f"what it had not read could not be read back from disk ({error.strerror or error})"
                self.evict(subscription, Reason.SPILL_FAILED, why, (), now, unreadable=True)
        return shares

    def _look(self, subscription: Subscription, now: float, shares: Shares) -> None:
        case = subscription.case
        case.state.keep_up(self.late_s)
        sample = observe(self._registry, subscription, now, shares)
        if case.state.plugged:
            sample = self.plugged.measure(subscription, sample, case.state.plugged, now, now + self.wall_offset_s)
        case.last_sample = sample
        if self._registry.observer is not None:
            self._registry.observer.looked(subscription, sample, now)
        for decision in case.evaluate(sample, now):
            self._decide(subscription, decision, with_peer(sample, subscription), now)
            if subscription.ended:
                return
        self._recover(subscription, now)
        if self._over_share(subscription, now) or self._holds_too_much(subscription, now):
            return
        for action in case.lasting():
            match action.kind:
                case ActionKind.DISCARD:
                    discard(subscription, action, self._registry.lost)
                case ActionKind.OFFLINE:
                    self._offline(subscription, now)
                case ActionKind.BLOCK_PUBLISHERS:
                    self._gate(subscription, now)
                case ActionKind.RETURN:
                    self._return(subscription, action, now)
        self._tell_gap(subscription, now)
        self._tell_offline(subscription, now)
        if case.calm and not sample.in_flight and not subscription.has_more:
            case.meter.caught_up(now)
            # Who is lagging has a blocked outlet: should more come, nobody would say once more that it fell behind.
            if subscription not in subscription.session.lagging:
                self._registry.watched.pop(subscription, None)

    # -- deciding ---------------------------------------------------------------------------------------------------

    def _decide(self, subscription: Subscription, decision: Decision, sample: Sample, now: float) -> None:
        session, action = subscription.session, decision.action
        if session.outlet is None and action.kind in (ActionKind.DISCONNECT, ActionKind.CLOSE_CONSUMER):
            return  # it has gone already
        if action.kind is ActionKind.DELETE_SUBSCRIPTION and subscription.durable and not action.durable:
            decision = msgspec.structs.replace(decision, enforced=False)  # durable ones are spared unless told
        if action.kind is ActionKind.PLUGIN and decision.kind is DecisionKind.FIRE and decision.enforced:
            decision = self.plugged.ask(subscription, decision, sample, now, now + self.wall_offset_s)
            subscription.case.state.hold(decision.rule, decision.moves or ())
        verdict = judge(
            decision, sample, number=self.book.next_number(), now=now, wall_s=now + self.wall_offset_s,
            client=session.client, filter=subscription.filter, policy=subscription.case.policy.name,
            listener=session.listener,
        )  # fmt: skip
        self._record(subscription, verdict, now)
        if not decision.enforced:
            return
        for move in (decision.moves or ()) if action.kind is ActionKind.PLUGIN else (Move(action),):
            if decision.kind is DecisionKind.FIRE:
                self._move(subscription, move, verdict, now)
            elif decision.kind is DecisionKind.CLEAR and move.action is not None:
                self._undo(subscription, move.action, now)

    def _record(self, subscription: Subscription, verdict: Verdict, now: float) -> None:
        """Keep the verdict, mark the consumer, and let it be known."""
        self.book.add(verdict)
        subscription.case.last_verdict = verdict
        if self._registry.observer is not None:
            self._registry.observer.verdict(verdict, subscription)
        fires = verdict.kind is DecisionKind.FIRE
        if fires and subscription.case.meter.mark_slow(now):
            self._registry.count_slow(subscription, 1)
            self.watch(subscription, now)  # until it is slow no more
        elif not fires:
            self._recover(subscription, now)
        self._advisories.tell(
            "slow" if fires else "recovered", verdict.client, now, filter=verdict.filter, policy=verdict.policy,
            rule=verdict.rule, action=verdict.action.word, reason=verdict.reason, cause=verdict.cause,
            enforced=verdict.enforced, text=verdict.text,
        )  # fmt: skip

    def _recover(self, subscription: Subscription, now: float) -> None:
        if subscription.case.recover(now):
            self._registry.count_slow(subscription, -1)

    def _move(self, subscription: Subscription, move: Move, verdict: Verdict, now: float) -> None:
        if move.action is not None:
            if not subscription.ended and not subscription.gone:
                self._act(subscription, move.action, verdict, now)
        else:
            self._advisories.tell("told", verdict.client, now, filter=verdict.filter, action=verdict.action.word,
                                  text=move.text, details=move.details)  # fmt: skip

    def _act(self, subscription: Subscription, action: Action, verdict: Verdict, now: float) -> None:
        registry = self._registry
        match action.kind:
            case ActionKind.NOTIFY:
                return  # told already
            case ActionKind.OFFLINE:
                self._offline(subscription, now)
            case ActionKind.CONFLATE:
                start_conflating(subscription, now)
            case ActionKind.DISCARD:
                discard(subscription, action, registry.lost)
            case ActionKind.BLOCK_PUBLISHERS:
                self._gate(subscription, now)
            case ActionKind.CLOSE_CONSUMER:
                registry.effects.append(CloseConsumer(subscription, verdict))
                self._advisories.tell("close_consumer", verdict.client, now, filter=verdict.filter, text=verdict.text)
            case ActionKind.RETURN:
                return  # as all that lasts, at each look
            case ActionKind.DISCONNECT:
                self._cut(subscription, verdict.reason, verdict.text, now)
            case ActionKind.DELETE_SUBSCRIPTION if subscription.channel is not subscription.session.channel:
                self._delete_queue(subscription, verdict, now)
            case ActionKind.DELETE_SUBSCRIPTION:
                self._ending.end(subscription, verdict.reason, now)
                if subscription.session.outlet is None:
                    self._keeping.deleted("client", verdict.client, verdict.reason, verdict.text)
                self._advisories.tell("deleted", verdict.client, now, filter=verdict.filter, text=verdict.text)

    def _undo(self, subscription: Subscription, action: Action, now: float) -> None:
        match action.kind:
            case ActionKind.CONFLATE:
                subscription.conflation.stop(subscription)
            case ActionKind.DISCARD:
                stop_discarding(subscription)
            case ActionKind.BLOCK_PUBLISHERS:
                self._ending.open_gate(subscription, now)
            case _:
                return

    def _gate(self, subscription: Subscription, now: float) -> None:
        """Publishers wait for this consumer, as long as it is there."""
        feed = subscription.feed
        if subscription.session.outlet is None or subscription.reader.reads_itself:
            return  # nobody publishes to it
        feed.gates.setdefault(subscription, now)
        subscription.session.gates[subscription] = None
        if feed.gated and not feed.was_gated:
            feed.was_gated = True
            feed.gated_since_s = now

    def _offline(self, subscription: Subscription, now: float) -> None:
        """Send what the consumer still needs to disk, once for all who need it; again at each sweep."""
        spill = spill_of(subscription.feed.lane, subscription.cursor.lag_bytes, self._registry.journaled, now)
        if spill is not None:
            self._registry.effects.append(spill)

    def change_policy(self, subscription: Subscription, now: float) -> None:
        """The configuration was reloaded: the consumer's policy may be another now."""
        name = subscription.request.options.policy
        policy = self._registry.policy_named(name) if name is not None else None
        if policy is None:
            policy = self._registry.policy_of(subscription)
        case = subscription.case
        if policy == case.policy:
            return
        case.state.keep_up(self.late_s)
        sample = observe(self._registry, subscription, now, {})
        state, decisions = replace_policy(case.policy, case.state, policy, sample, now)
        for decision in decisions:
            self._decide(subscription, decision, sample, now)
        state.late_s = self.late_s
        case.govern_by(policy, state)
        self.watch(subscription, now)

    def _return(self, subscription: Subscription, action: Action, now: float) -> None:
        """An acknowledgement takes too long: others get the records, and the consumer may go on with its work."""
        queue = subscription.reader.queue
        if queue is None:
            return
        returned = queue_of(queue).requeue_late(subscription, now - action.older_s)
        if returned:
            self._advisories.tell("returned", subscription.session.client, now, filter=subscription.filter,
                                  records=returned)  # fmt: skip

    def _delete_queue(self, subscription: Subscription, verdict: Verdict, now: float) -> None:
        """The queue goes with its consumer, unless others consume it too."""
        queue = queue_of(subscription.reader.queue)
        self._cut(subscription, verdict.reason, verdict.text, now)
        if queue.placeholder is subscription:
            self._keeping.deleted("queue", queue.name, verdict.reason, verdict.text)
        if not queue.members.consumers:
            self._queues.delete(queue, now)
        self._advisories.tell("deleted", verdict.client, now, filter=verdict.filter, text=verdict.text)

    def _cut(self, subscription: Subscription, reason: Reason, text: str, now: float) -> None:
        """Close the consumer's channel, where its client has consumers on others; else the connection."""
        session, channel = subscription.session, subscription.channel
        self.cuts_left -= 1
        if channel is session.channel or all(other.channel is channel for other in session.subscriptions.values()):
            self.give_up(session, reason, text, now)
            return
        self._flap.strike(session.client, now)
        self._queues.close_channel(session, channel, now)
        self._registry.effects.append(CloseChannel(session, channel, reason, text))
        self._advisories.tell("disconnected", session.client, now, reason=reason, text=text, channel=channel.number)

    def give_up(self, session: Session, reason: Reason, text: str, now: float) -> None:
        """Disconnect a client for what it costs the others. A durable session keeps its subscriptions."""
        if session.outlet is None:
            return
        shut_out_s = self._flap.strike(session.client, now)
        if shut_out_s:
            text += f"; readmitted in {shut_out_s:g} s"
        self._admission.expel(session, reason, text, now)
        self._advisories.tell("disconnected", session.client, now, reason=reason, text=text)

    # -- pressure ---------------------------------------------------------------------------------------------------

    def _over_share(self, subscription: Subscription, now: float) -> bool:
        """One client may not take up more than its share of a pool, whatever room there is."""
        pool = subscription.session.pool
        over = over_share(pool, subscription, now)
        if over is None or not gives_way(subscription):
            return False
        used, limit = over
        why = f"it holds more than one client's share of the pool ({format_size(used)} of {format_size(limit)})"
        reading = Reading("pool_share", used / max(1, limit), ">", 1.0)
        self.evict(subscription, Reason.CLIENT_SHARE, why, (reading,), now)
        return True

    def _holds_too_much(self, subscription: Subscription, now: float) -> bool:
        """Clients take up all they may, and this one has been written what it does not take: a copy of its own, of
        which nobody else has anything."""
        session, pool = subscription.session, subscription.session.pool
        unsent = session.count_unsent()
        outlet = session.outlet
        if unsent < UNSENT_BYTES or pool.clients_bytes <= pool.clients_limit or outlet is None:
            return False
        if outlet.blocked_s(now) < GRACE_S:
            return False
        taken, limit = format_size(pool.clients_bytes), format_size(pool.clients_limit)
        why = (f"clients take up {taken} of {limit} besides records, "
               f"and it has not taken {format_size(unsent)} that are written for it alone")  # fmt: skip
        self.evict(subscription, Reason.CLIENT_MEMORY, why, (), now)
        return True

    def evict(
        self, subscription: Subscription, reason: Reason, why: str, readings: tuple[Reading, ...], now: float, *,
        unreadable: bool = False,
    ) -> None:  # fmt: skip
        """A pool is over its limit and this consumer stands in the way; or what it is to be given cannot be read."""
        session, queue = subscription.session, subscription.reader.queue
        # It is gone, but for what it has not settled.
        departed = queue is not None and subscription in queue_of(queue).members.departed
        departed = departed and bool(subscription.window.used)
        if subscription.ended and not departed:
            return
        if subscription.gone and not departed:
            self._ending.end(subscription, Reason.SUBSCRIPTION_ENDED, now)  # its turn would come
            return
        pool = session.pool
        if pool.disk_broken(now) and reason in (Reason.MEMORY_LIMIT, Reason.CLIENT_SHARE):
            reason, why = Reason.SPILL_FAILED, f"{why}; nothing can be written to disk ({pool.disk_error})"
        sample = with_peer(observe(self._registry, subscription, now, {}), subscription)
        durable = session.expiry_s > 0
        action = ActionKind.DISCARD if durable and session.outlet is None else ActionKind.DISCONNECT
        verdict = judge_pressure(
            reason, action, why, sample, number=self.book.next_number(), now=now, wall_s=now + self.wall_offset_s,
            client=session.client, filter=subscription.filter, listener=session.listener, readings=readings,
        )  # fmt: skip
        self._record(subscription, verdict, now)
        if session.outlet is not None:
            self._cut(subscription, reason, verdict.text, now)
        if not subscription.ended:
            write_off(self._registry, self._ending, subscription, reason, now, unreadable=unreadable)
        elif departed:
            self._recover(subscription, now)
            self._registry.watched.pop(subscription, None)

    # -- telling ----------------------------------------------------------------------------------------------------

    def _tell_gap(self, subscription: Subscription, now: float) -> None:
        """Let it be known, once a second at most, that records were left out for this consumer."""
        records = subscription.case.gap_to_tell(subscription.counters.gap_records.total(), now)
        if records:
            self._advisories.tell("gap", subscription.session.client, now, filter=subscription.filter, records=records,
                                  total=dict(subscription.counters.gap_records))

    def _tell_offline(self, subscription: Subscription, now: float) -> None:
        chunk = subscription.cursor.chunk
        offline = chunk is not None and chunk.spill is not None
        if subscription.case.offline_to_tell(offline):
            self._advisories.tell("offlined" if offline else "online", subscription.session.client, now,
                                  filter=subscription.filter, lag_bytes=subscription.lag_bytes)
