"""Enforcement carries out the actions of policies, and undoes them when their rules step back.

The moves of cursors are in ``moves.py``. This file chooses the move for an action, and does the rest: gates, spilling,
closing, deleting.
"""

from __future__ import annotations

from functools import partial

from headway.core.clients import DurableMetadata, Ending, Queues
from headway.core.consumer import CloseConsumer, Outlet, Subscription
from headway.core.delivery import start_conflating
from headway.core.governance.memory import spill_of
from headway.core.governance.moves import Cutter, discard, stop_discarding
from headway.core.policy import Action, ActionKind, Policy, Verdict
from headway.core.queue import queue_behind, queue_of
from headway.core.routing import Advisories, Registry

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
        if feed.gated and not feed.was_gated:
            feed.was_gated = True
            feed.gated_since_s = now

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
