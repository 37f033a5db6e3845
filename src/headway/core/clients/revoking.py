"""Revoking: what clients may not have any more after a reload of the permissions.

Theory of operation. A reload gives all clients their new rights at once (``RightsSource``): each question that a client
asks from then on is answered by them. What stands is judged over the turns to come, one session after the other
(``SessionRound``). A session is passed over if its rights have lost nothing since what stands was judged.

Rules:
- A session is judged as a whole. If something of it is denied, its client is disconnected and told why, or told when it
  comes back if it is away. Then its subscriptions that are no longer allowed end, with the deliveries that it has not
  settled, also over several turns; until they have, the session is not resumed.
- What only a client's library reads ends without a word.
- A consumer of a queue is cancelled. Records that it has not settled stay in the queue, as when a client cancels.
- An exclusive queue with a binding that its client may not make any more is deleted.
- A client that may not connect any more is disconnected. Its session stays, for its own user, until it expires.
- A will to a topic that its client may not publish to is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable

from headway.core.base import DELIVERY_WORK, END_WORK, Reason, Refused, WorkSteps
from headway.core.clients.durability import DurableMetadata
from headway.core.clients.queues import Queues, check_binding, is_own, read_by
from headway.core.clients.sessions import Admission, Ending
from headway.core.consumer import NO_WILL, Revoked, Session, Subscription
from headway.core.delivery import lose
from headway.core.permission import ALL_RIGHTS, Grants, Operation, Rights
from headway.core.queue import queue_of
from headway.core.routing import Registry, SessionRound

RightsOf = Callable[[Session], Rights]
JUDGE_WORK = 3
"""The work of judging one subscription or binding."""
FILTERS_PER_WORK = 4
"""How many filters of its rights are looked at in the time of one unit of work."""
TEXTS_MAX = 16
"""A client is told so many denials one by one, and how many more there are."""


class Revoking:
    def __init__(self, registry: Registry, admission: Admission, ending: Ending, queues: Queues,
                 metadata: DurableMetadata) -> None:
        self._registry = registry
        self._admission = admission
        self._ending = ending
        self._queues = queues
        self._metadata = metadata
        self.round = SessionRound(registry, self._visit, self._round_over)
        self._less: dict[tuple[Grants, Grants], frozenset[Operation]] = {}
        """The operations for which grants allow less than others, as far as this round has found out."""
        self._on_round_over: Callable[[], None] = lambda: None

    def apply(self, rights_of: RightsOf, now: float, over: Callable[[], None] = lambda: None) -> None:
        """Gives each session its rights, and ends what they do not allow. Calls ``over`` when all were judged."""
        self._registry.rights.replace(rights_of)
        self._on_round_over = over
        self.round.begin(now)

    def regrant(self, session: Session, rights: Rights, now: float) -> None:
        """Gives one session other rights, and ends what they do not allow."""
        session.grant(rights)
        self._registry.rounds.begin(self._visit_alone(session), now)

    def _visit_alone(self, session: Session) -> WorkSteps:
        if not session.ended:
            yield from self._visit(session)
        if not self.round.going:
            self._less.clear()

    def _round_over(self) -> None:
        self._less.clear()
        self._on_round_over()

    def _visit(self, session: Session) -> WorkSteps:
        rights, before = session.rights, session.held.judged_by
        lost = self._lost(rights, before)
        if lost:
            yield from self._judge(session, rights, lost)
        # If another reload came meanwhile, nothing is known of what was judged first.
        session.held.judged_by = rights if session.rights is rights else ALL_RIGHTS

    def _lost(self, rights: Rights, before: Rights) -> frozenset[Operation]:
        pair = rights.grants, before.grants
        known = self._less.get(pair)
        if known is None:
            known = self._less[pair] = rights.grants.less_than(before.grants)
        return known

    def _judge(self, session: Session, rights: Rights, lost: frozenset[Operation]) -> WorkSteps:
        """Judges all that a session has, and ends what is denied."""
        if Operation.PUBLISH in lost:
            self._forget_wills(session, rights)
        texts = _refusal(rights.check_connect)
        denied: list[Subscription] = []
        work = JUDGE_WORK + rights.breadth(Operation.SUBSCRIBE) // FILTERS_PER_WORK
        for subscription in list(session.subscriptions.values()) if Operation.SUBSCRIBE in lost else ():
            read = None if subscription.ended else read_by(subscription)
            if read is not None and not rights.covers(Operation.SUBSCRIBE, read):
                rights.may(Operation.SUBSCRIBE, read)  # counts the denial
                text = rights.text(Operation.SUBSCRIBE, read) if len(texts) < TEXTS_MAX else ""
                if not self._end_at_once(subscription, text):
                    texts.append(text)
                    denied.append(subscription)
                yield END_WORK
            yield work
        self._end(session, texts, denied)
        if {Operation.SUBSCRIBE, Operation.PUBLISH} & lost:
            yield from self._judge_bindings(session, work)

    def _end_at_once(self, subscription: Subscription, text: str) -> bool:
        """Cancels a consumer on a channel, or what only a client's library reads. Returns False for another
        subscription."""
        if subscription.request.by_library:
            self._ending.end(subscription, Reason.NOT_AUTHORIZED, self._registry.rounds.now)
            return True
        if not subscription.has_channel:
            return False
        if subscription.request.polling:
            self._queues.cancel(subscription, self._registry.rounds.now)
        else:
            subscription.let_flow(False)
            self._registry.effects.append(Revoked(subscription, text))
        return True

    def _end(self, session: Session, texts: list[str], denied: list[Subscription]) -> None:
        """Disconnects a client if something was denied, and begins to end these subscriptions."""
        if session.ended or not texts:
            return
        now = self._registry.rounds.now
        more = f"; and {len(texts) - TEXTS_MAX} more" if len(texts) > TEXTS_MAX else ""
        text = "; ".join(texts[:TEXTS_MAX]) + more
        if denied:
            session.held.being_cleared = True
            self._registry.deferred.begin(self._end_all(session, denied), now, client=session)
        if session.connected:
            self._admission.expel(session, Reason.NOT_AUTHORIZED, text, now)
        elif session.durable:
            self._metadata.deleted("client", session.client, Reason.NOT_AUTHORIZED, text)

    def _end_all(self, session: Session, denied: list[Subscription]) -> WorkSteps:
        """Ends subscriptions. What was sent and not settled is not sent again to this client; what a group has sent to
        it goes to the others."""
        ending, channel = dict.fromkeys(denied), session.channel
        for subscription in denied:
            if subscription.reader.queue is not None and not subscription.ended:
                unsettled = queue_of(subscription.reader.queue).unsettled
                yield from unsettled.requeue_in_steps(subscription, Reason.NOT_AUTHORIZED)
                yield END_WORK
        for delivery_id, delivery in list(channel.in_flight.items()):
            if delivery.subscription in ending and not delivery.released and delivery_id in channel.in_flight:
                lose(delivery.subscription, delivery_id)
                yield DELIVERY_WORK
        channel.replay = [delivery_id for delivery_id in channel.replay if delivery_id in channel.in_flight]
        for subscription in denied:
            self._ending.end(subscription, Reason.NOT_AUTHORIZED, self._registry.deferred.now)
            yield END_WORK
        session.held.being_cleared = False

    def _forget_wills(self, session: Session, rights: Rights) -> None:
        if not session.will.permitted(rights):
            session.will = NO_WILL
        if not session.pending_will.permitted(rights):
            session.pending_will = NO_WILL
            session.will_due.cancel()
        session.settle_tab()

    def _judge_bindings(self, session: Session, work: int) -> WorkSteps:
        """Deletes the exclusive queues of a client that have a binding which it may not make any more."""
        for queue in map(queue_of, list(self._registry.owned.get(session, ()))):
            for binding in self._queues.feeds.bindings_of(queue):
                if queue.ended or session.ended:
                    break
                source = self._registry.router.exchanges.by_name.get(binding.source)
                try:
                    if source is not None:
                        check_binding(session.rights, binding, source, own=is_own(queue.name, queue.terms))
                except Refused:
                    self._queues.delete(queue, self._registry.rounds.now)
                    yield END_WORK
                yield work


def _refusal(check: Callable[[], None]) -> list[str]:
    try:
        check()
    except Refused as refused:
        return [str(refused)]
    return []
