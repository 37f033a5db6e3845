"""Links on which a client sends: messages become records, and the fates of records become outcomes.

Rules:
- A message is ``accepted`` once the broker answers for it: the journal has it, where it is to be kept. One that no
  queue takes is ``released``, and one that is refused is ``rejected``, with the reason.
- A client gets credit for ``CREDIT`` messages, and more when half of it is used. A client that has to wait, because
  others do not keep up, gets none until it may go on, and is told why in the properties of a flow.
- Without an address of the link (the anonymous relay) each message says in ``to`` where it goes.
"""

from __future__ import annotations

from functools import partial

from headway.core.base import HeadwayError, ProtocolError, Reason, Refused
from headway.core.message import (
    JOB_PATIENCE,
    MERGE,
    TOPICS,
    Run,
    receipt_request,
    says_merge,
    topic_of,
)
from headway.core.routing import part_of
from headway.server.amqp1.ports import Link, LinkFault, SessionSide, link_fault
from headway.server.amqp1.terminus import Node, Place, place_of, topic_in
from headway.server.connections import Steps
from headway.server.peers import NO_PATCHES, check_copies, check_patience, check_topic, merges, take_merge_away
from headway.wire.amqp1.items import Transfers
from headway.wire.amqp1.performatives import Attach, Flow, Target, TransactionalState
from headway.wire.amqp1.properties import SECTIONS, Facts, read_content
from headway.wire.amqp1.replies import ACCEPTED, RELEASED, accepted_in, rejected
from headway.wire.amqp1.values import Condition
from headway.wire.codecs import queue_form

CREDIT = 1000
RECEIPT = "x-headway-receipt"
LEAD_SHARE_BYTES = 64
"""So many bytes of a message's sections before its body are one unit of work."""


class PublishingLink(Link):
    __slots__ = ("_count", "_credit", "_directed", "_place", "_places")

    def __init__(self, session: SessionSide, attach: Attach, place: Place | None) -> None:
        super().__init__(session, attach)
        self._place = place
        self._count = attach.initial_delivery_count or 0
        self._credit = 0
        self._places: tuple[str, Place] | None = None
        """The address of the last message on an anonymous link, and what it means."""
        self._directed: Transfers | None = None
        """The item that has its address already."""

    # -- credit -------------------------------------------------------------------------------------------------------

    def give_credit(self, why: str = "") -> None:
        """Tops the credit up; with a reason, takes it back."""
        self._credit = 0 if why else CREDIT
        properties: dict[str, object] | None = {"x-opt-headway-paused": why} if why else None
        self._session.say_flow(self.handle, self._count, self._credit, properties=properties)

    def flow(self, flow: Flow) -> None:
        if flow.delivery_count is not None and flow.delivery_count != self._count:
            used = flow.delivery_count - self._count & 0xFFFF_FFFF
            if used < 1 << 31:  # the client gave credit up
                self._took(used)
        if flow.echo:
            self._session.say_flow(self.handle, self._count, self._credit)

    def _took(self, count: int) -> None:
        """Counts messages that have come."""
        self._count = self._count + count & 0xFFFF_FFFF
        self._credit = max(0, self._credit - count)
        if self._credit <= CREDIT // 2 and not self._session.peer.must_wait:
            self.give_credit()

    # -- messages -----------------------------------------------------------------------------------------------------

    def lost(self, first_id: int, condition: Condition, text: str) -> None:
        self._took(1)
        self._session.settle(first_id, first_id, rejected(condition, text))

    def skip(self, count: int = 1) -> None:
        self._took(count)

    def direct(self, item: Transfers) -> None:
        """Puts down where a run goes. Raises LinkFault, Refused, ProtocolError."""
        if self._directed is item:
            return
        self._session.peer.budget.left -= len(item.content.lead) // LEAD_SHARE_BYTES
        facts = read_content(item.content)
        place = self._place or self._told(facts.to)
        run = item.run
        if place.node is Node.TOPIC:
            run.topic, run.exchange = place.name, TOPICS
        elif place.node is Node.QUEUE:
            run.topic, run.exchange = topic_of(place.name), ""
        else:
            key = place.key if place.key is not None else facts.subject or ""
            if place.name == TOPICS:
                run.topic, run.exchange = topic_in(key, filter=False) if key else "", TOPICS
            else:
                run.topic, run.exchange = topic_of(key), place.name
        if run.exchange == TOPICS and not run.topic:
            raise LinkFault(Condition.PRECONDITION_FAILED, "the message has no subject, which is to be its topic")
        if run.exchange == TOPICS:
            check_topic(run.topic, self._session.session, self._session.peer.engine)
        check_copies(facts.headers)
        run.properties, run.headers, run.qos = facts.properties, facts.headers or None, int(facts.persistent)
        if facts.ttl_ms is not None:
            run.expires_s = self._session.now() + facts.ttl_ms / 1000
        self._check(run, facts)
        self._directed = item

    def _told(self, to: str | None) -> Place:
        if not to:
            raise LinkFault(Condition.PRECONDITION_FAILED, "the message does not say in its property to where it goes")
        if self._places is None or self._places[0] != to:
            place = place_of(self._session.peer.engine, self._session.peer.granted.rights, to, None, filter=False)
            _make_queue(self._session, place)
            self._places = to, place
        return self._places[1]

    def _check(self, run: Run, facts: Facts) -> None:
        peer = self._session.peer
        if facts.user_id and peer.username and facts.user_id != peer.username:
            text = f"user-id is '{facts.user_id}', and the connection is that of '{peer.username}'"
            raise LinkFault(Condition.UNAUTHORIZED_ACCESS, text)
        headers = facts.headers
        if JOB_PATIENCE in headers:
            check_patience(str(headers[JOB_PATIENCE]), JOB_PATIENCE)
        if says_merge(facts.properties) and merges(peer.engine, run):
            take_merge_away(run, SECTIONS)
        if RECEIPT in headers:
            common = queue_form().read_common(facts.properties)
            reply = common.reply_to
            to = "" if reply is None else reply.name if reply.is_topic else topic_of(reply.name)
            run.receipt = receipt_request(
                headers[RECEIPT], reply_to=to, exchange=TOPICS if reply is not None and reply.is_topic else "",
                correlation=facts.properties.correlation_data,
            )  # fmt: skip

    def publish(self, item: Transfers) -> None:
        count = len(item.run)
        if count > self._credit:
            text = f"{count} messages came with credit for {self._credit}"
            raise LinkFault(Condition.TRANSFER_LIMIT_EXCEEDED, text)
        self._took(count)
        try:
            self.direct(item)
            self._session.peer.queues.check_publish(item.run)
            if isinstance(item.state, TransactionalState):
                self._put_off(item, item.state.txn_id)
                return
        except (LinkFault, Refused, ProtocolError) as error:
            if isinstance(item.state, TransactionalState):
                self._spoil(item.state.txn_id, error)
            self._refuse(item, 0, count, error)
            return
        item.run.confirmed = not item.settled
        start, work = self._some(item, 0)
        self._session.peer.budget.left -= work - 1  # the command itself has counted as one
        if start < count:
            self._session.peer.budget.begin(self._rest(item, start))

    def _refuse(self, item: Transfers, start: int, stop: int, error: HeadwayError) -> None:
        """Rejects messages; a client that does not want to know has them counted."""
        fault = link_fault(error)
        self._session.session.refused_records += stop - start
        if item.settled:
            raise fault  # nothing else would tell it
        self._settle(item, start, stop, rejected(fault.condition, str(fault)), kept=False)

    def _settle(self, item: Transfers, start: int, stop: int, state: bytes, *, kept: bool) -> None:
        if stop > start and not item.settled:
            first = item.first_id + start
            self._session.settle(first, first + stop - start - 1, state, kept=kept)

    def _some(self, item: Transfers, start: int) -> tuple[int, int]:
        """Publishes as many messages of a run as one step takes. Returns the index of the first one left, and the work.
        """
        peer, run = self._session.peer, item.run
        broker, now = peer.engine.broker, self._session.now()
        session = self._session.session
        if (run.receipt is not None or says_merge(run.properties)) and len(run) > 1:
            one = part_of(run, start, start + 1)  # the fate of each depends on those before it
            one.receipt, one.confirmed = run.receipt, run.confirmed
            part, taken, accepted, work, _, refused, feeds = broker.intake.publish_slice(session, one, now, 0)
            stop = start + 1
        else:
            part, taken, accepted, work, stop, refused, feeds = broker.intake.publish_slice(session, run, now, start)
        if taken:
            peer.pace(taken, feeds)
        if refused is not None:
            self._refuse(item, start, stop, refused)
        elif not taken and run.exchange != TOPICS:
            self._settle(item, start, stop, RELEASED, kept=False)
        else:
            self._settle(item, start, start + accepted, ACCEPTED, kept=part.journaled)
            if start + accepted < stop:
                text = "the queue is full, and refuses more"
                if not item.settled:
                    state = rejected(Condition.RESOURCE_LIMIT_EXCEEDED, text)
                    self._settle(item, start + accepted, stop, state, kept=False)
        return stop, work

    def _rest(self, item: Transfers, start: int) -> Steps:
        """Publishes the rest of a run in steps, and waits while its client has to."""
        while start < len(item.run):
            if self._session.gone:
                return
            if self._session.peer.waits_with(item.run, start):
                yield 0
            else:
                start, work = self._some(item, start)
                yield work

    # -- transactions -------------------------------------------------------------------------------------------------

    def _spoil(self, txn_id: bytes, error: HeadwayError) -> None:
        transaction = self._session.peer.transactions.get(txn_id)
        if transaction is not None:
            transaction.spoil(Refused(Reason.PRECONDITION_FAILED, f"a message of the transaction was refused: {error}"))

    def _put_off(self, item: Transfers, txn_id: bytes) -> None:
        peer, run = self._session.peer, item.run
        transaction = peer.transactions.get(txn_id)
        if transaction is None:
            raise LinkFault(Condition.UNKNOWN_ID, "there is no such transaction")
        if says_merge(run.properties):
            raise LinkFault(Condition.PRECONDITION_FAILED, f"{MERGE}: {NO_PATCHES}")
        run.confirmed = True
        steps = publish_all(self._session, run)
        transaction.publish(steps, [run], len(run.data) + len(item.content.lead))
        transaction.check_at_commit(partial(peer.queues.check_publish, run))
        self._settle(item, 0, len(run), accepted_in(txn_id), kept=False)


def publish_all(session: SessionSide, run: Run) -> Steps:
    """Publishes a run in the course of a commit, which goes on even if the client leaves."""
    engine, core, start = session.peer.engine, session.session, 0
    while start < len(run.ends):
        if not engine.broker.intake.has_its_turn(run):
            yield 0
            continue
        part, _, accepted, work, start, *_ = engine.broker.intake.publish_slice(core, run, engine.now(), start)
        if accepted < len(part):  # others have filled the queue since the commit began
            raise Refused(Reason.QUEUE_LENGTH, "the queue is full, and refuses more")
        yield max(1, work)


def _make_queue(session: SessionSide, place: Place) -> None:
    """Makes the queue that a place means, if there is none. One that is another client's own may be sent to."""
    queues = session.peer.queues
    if place.node is Node.QUEUE:
        queues.check_send(place.name)
        if not queues.knows(place.name):
            queues.named(place.name)


def place_for(session: SessionSide, target: Target) -> Place:
    """Returns what the target of a link means; makes its queue if there is none. Raises LinkFault, Refused."""
    peer = session.peer
    place = place_of(peer.engine, peer.granted.rights, target.address, target.capabilities, filter=False)
    _make_queue(session, place)
    if place.node is Node.EXCHANGE:
        exchange = peer.engine.broker.registry.router.exchanges.by_name[place.name]
        if exchange.internal:
            text = f"exchange '{exchange.name}' is internal: bind another one to it"
            raise LinkFault(Condition.UNAUTHORIZED_ACCESS, text)
    return place


