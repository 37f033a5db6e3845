"""One session: its links, its windows, and the settling of what its links have sent.

A session is a channel of the core, which numbers deliveries from 1 on. A delivery id of AMQP 1.0 is that number less
one, in 32 bits. Ids of settled deliveries are unknown to the broker, and are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from headway.core.base import HeadwayError, ProtocolError, Reason, Refused
from headway.core.consumer import Session, Subscription
from headway.core.queue import queue_behind
from headway.server.amqp1.consuming import ConsumingLink
from headway.server.amqp1.links import BrowsingLink, CoordinatorLink, Links, queue_to_browse
from headway.server.amqp1.ports import (
    MASK,
    WINDOW,
    ClientSide,
    Link,
    LinkFault,
    SessionFault,
    SessionSide,
    answered,
    link_fault,
)
from headway.server.amqp1.publishing import PublishingLink, place_for
from headway.server.connections import SUBSCRIBE_WORK, Steps
from headway.server.peers import Settle, Unconfirmed, settle, settle_in_steps
from headway.wire.amqp1.items import Lost, Transfers
from headway.wire.amqp1.performatives import (
    Accepted,
    Attach,
    Begin,
    Coordinator,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Received,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
)
from headway.wire.amqp1.replies import ACCEPTED, error, write, write_disposition
from headway.wire.amqp1.values import Condition

HANDLE_MAX = 4095
SESSIONS, SESSION_BYTES = "sessions", 1800
"""The memory of a session, with a bit for each handle in ``leaving``, besides its links."""
GONE_BACK_MAX = 4096
"""So many deliveries that went back to their queues are remembered, the last ones."""
GONE_BACK, GONE_BACK_BYTES = "gone_back", 100
LOOK_SHARE = 32
"""So many deliveries that are looked through are one unit of work."""


class Amqp1Session(SessionSide):
    __slots__ = ("_cut_upto", "_gone_back", "leaving", "links")

    def __init__(self, peer: ClientSide, session: Session, number: int, begin: Begin) -> None:
        super().__init__(peer, session, number, begin)
        session.tab.add(SESSIONS, SESSION_BYTES)
        self.links = Links(peer, session)
        self.leaving = Unconfirmed()
        """Handles of links that the broker has ended, and the client has not yet."""
        self._cut_upto = -1
        """The last delivery when the broker ended a link of topics; no delivery of such links is in flight."""
        self._gone_back: dict[int, None] = {}
        """Deliveries of links that have ended, which are in their queues again: no transaction can settle them."""
        peer.write(write(number, Begin(number, 0, WINDOW, WINDOW, HANDLE_MAX)))

    # -- windows ------------------------------------------------------------------------------------------------------

    def on_flow(self, flow: Flow) -> None:
        had = self.core.frames_left
        room = (flow.next_incoming_id or 0) + flow.incoming_window - self.next_outgoing & MASK
        self.core.frames_left = room if room < 1 << 31 else 0
        if had <= 0 < self.core.frames_left:
            self.core.exhausted_since_s = None
            for one in list(self.links.values()):
                if isinstance(one, BrowsingLink | ConsumingLink):
                    one.let_on()
            self.peer.budget.left -= len(self.links) // 8
        if flow.handle is None:
            if flow.echo:
                self.peer.write(write(self.number, self.flow_of_session()))
            return
        link = self._link(flow.handle)
        if link is not None:
            link.flow(flow)

    # -- links --------------------------------------------------------------------------------------------------------

    def _link(self, handle: int) -> Link | None:
        """Returns a link; None: the broker has ended it, and the client did not know yet. Raises SessionFault."""
        link = self.links.get(handle)
        if link is None and handle not in self.leaving:
            raise SessionFault(Condition.UNATTACHED_HANDLE, f"there is no link of the handle {handle}")
        return link

    def on_attach(self, attach: Attach) -> None:
        if attach.handle in self.links or attach.handle in self.leaving:
            raise SessionFault(Condition.HANDLE_IN_USE, f"the handle {attach.handle} is in use")
        if attach.handle > HANDLE_MAX:
            text = f"the handle {attach.handle} (at most {HANDLE_MAX})"
            raise SessionFault(Condition.RESOURCE_LIMIT_EXCEEDED, text)
        known = self.links.named(attach)
        if known is not None:
            self.end_link(known.handle, Condition.STOLEN, "the link was attached again")
        self.peer.budget.left -= SUBSCRIBE_WORK
        try:
            self.links.check_room(attach)
            if attach.role:
                self._attach_consumer(attach)
            else:
                self._attach_publisher(attach)
        except (LinkFault, Refused, ProtocolError) as fault:
            if isinstance(fault, SessionFault):
                raise
            self._refuse(attach, link_fault(fault))

    def _refuse(self, attach: Attach, fault: LinkFault) -> None:
        """Attaches without a terminus, and detaches with the reason (2.6.3)."""
        answer = answered(attach)._replace(properties=None, unsettled=None)
        answer = answer._replace(source=None) if attach.role else answer._replace(target=None)
        self._answer_link(answer, kept=False)
        self._answer_link(Detach(attach.handle, True, self._error(fault)), kept=False)
        self.leaving.add(attach.handle)

    def _error(self, fault: LinkFault) -> Error:
        return error(fault.condition, str(fault), self.peer.frame_bytes_max - 128)

    def _attach_consumer(self, attach: Attach) -> None:
        source = attach.source
        link: Link
        if isinstance(source, Source) and (queue := queue_to_browse(self, source)):
            browser = link = BrowsingLink(self, attach)
            answer = browser.begin(queue, source)
        else:
            consumer = link = ConsumingLink(self, attach)
            answer = consumer.begin()
        self.links.keep(link)
        self._answer_link(answered(answer), kept=isinstance(link, ConsumingLink) and link.durable)

    def _attach_publisher(self, attach: Attach) -> None:
        target: Any = attach.target
        link: CoordinatorLink | PublishingLink
        if isinstance(target, Coordinator):
            link = CoordinatorLink(self, attach)
        elif not isinstance(target, Target):
            if target is not None:
                raise LinkFault(Condition.NOT_IMPLEMENTED, "the target of the link is of an unknown kind")
            raise LinkFault(Condition.INVALID_FIELD, "the link has no target")
        elif target.dynamic:
            queue = self.peer.queues.temporary()
            target = target._replace(address=queue.name)
            link = PublishingLink(self, attach, place_for(self, target))
        elif target.address is None:
            link = PublishingLink(self, attach, None)
        else:
            link = PublishingLink(self, attach, place_for(self, target))
        self.links.keep(link)
        answer = answered(attach._replace(target=target))._replace(max_message_size=self.peer.message_bytes_max)
        self.peer.write(write(self.number, answer))
        link.give_credit()

    def on_detach(self, detach: Detach) -> None:
        handle = detach.handle
        if handle in self.leaving:
            self.leaving.remove(handle)
            return
        link = self._link(handle)
        if link is not None:
            self.links.forget(link)
            link.end(closed=bool(detach.closed))
            kept = bool(detach.closed) and isinstance(link, ConsumingLink) and link.durable
            self.peer.closing |= kept
            self._answer_link(Detach(handle, bool(detach.closed)), kept=kept)

    def _answer_link(self, answer: Attach | Detach, *, kept: bool) -> None:
        """Answers an attach or a detach; if ``kept``, once the journal has what it says."""
        self.peer.pending_links.send(write(self.number, answer), kept=kept, channel=self.number)

    def end_link(self, handle: int, condition: Condition, text: str) -> None:
        """Ends a link from the broker's side; its durable subscription stays."""
        link = self.links[handle]
        self.links.forget(link)
        if isinstance(link, ConsumingLink) and queue_behind(link.consumer) is None:
            self._cut_upto = self.core.last_id
        link.end(closed=False)
        self.leaving.add(handle)
        self._answer_link(Detach(handle, True, self._error(LinkFault(condition, text))), kept=False)

    # -- messages -----------------------------------------------------------------------------------------------------

    def on_transfers(self, item: Transfers) -> None:
        self.frames_came(item.frames)
        link = self._link(item.handle)
        if link is not None:
            link.publish(item)

    def direct(self, item: Transfers) -> bool:
        """Puts down where messages go, if that can be told. Returns whether it can."""
        link = self.links.get(item.handle)
        if not isinstance(link, PublishingLink):
            return False
        try:
            link.direct(item)
        except HeadwayError:
            return False  # it is told when the messages are published
        return True

    def on_lost(self, item: Lost) -> None:
        self.frames_came(item.frames)
        link = self._link(item.handle)
        if link is None:
            return
        if item.aborted:
            if isinstance(link, PublishingLink):
                link.skip()
        elif item.settled:
            raise LinkFault(Condition.MESSAGE_SIZE_EXCEEDED, item.text)
        else:
            large = "bytes or more" in item.text or "at most" in item.text
            link.lost(item.delivery_id, Condition.MESSAGE_SIZE_EXCEEDED if large else Condition.DECODE_ERROR, item.text)

    # -- deliveries ---------------------------------------------------------------------------------------------------

    def on_disposition(self, said: Disposition) -> None:
        if not said.role:
            return  # the client settles what it has sent; the broker has done so already
        last = said.first if said.last is None else said.last
        if isinstance(said.state, TransactionalState):
            self._put_off(said, last, said.state)
            return
        do = self._outcome(said.state, settled=bool(said.settled))
        if do is None:
            return
        ids = self._ids(said.first, last)
        answer = b"" if said.settled else write_disposition(self.number, False, said.first, last, ACCEPTED)
        if len(ids) <= 1:
            self.peer.budget.left -= settle(self.peer.engine, ids, do)
            self._answer(answer)
        else:
            self.peer.budget.begin(self._settle(ids, do, answer))

    def _ids(self, first: int, last: int) -> Sequence[int]:
        """Returns the core's numbers of the unsettled deliveries in a range of ids, whichever way is the shorter."""
        begin, count = self._number(first), (last - first & MASK) + 1
        core = self.core
        unsettled = len(core.in_flight) + len(core.timed_out)
        self.peer.budget.left -= min(count, unsettled) // LOOK_SHARE
        if count <= unsettled:
            return [one for one in range(begin, begin + count) if core.holds(one)]
        return [one for one in core.upto(begin + count - 1) if one >= begin] if begin + count > 1 else []

    def _number(self, delivery_id: int) -> int:
        """Returns the core's number of a delivery id: that which is nearest to the last one."""
        last = self.core.last_id
        back = (last - 1 - delivery_id) & MASK
        return last - back if back < 1 << 31 else last + (1 << 32) - back

    def _outcome(self, state: Any, *, settled: bool) -> Settle | None:
        """Returns what a state does to deliveries; None: nothing yet."""
        queues, core = self.peer.engine.broker.queues, self.core
        match state:
            case Accepted():
                return partial(queues.acknowledge, core)
            case Rejected():
                return partial(queues.refuse, core, requeue=False)
            case Released():
                return partial(queues.refuse, core, requeue=True, failed=False)
            case Modified(failed, here, _):
                return partial(queues.refuse, core, requeue=not here, failed=bool(failed))
            case None if settled:
                return partial(queues.acknowledge, core)
            case None | Received():
                return None
        raise SessionFault(Condition.NOT_IMPLEMENTED, "a disposition has an unknown state")

    def _settle(self, ids: Sequence[int], do: Settle, answer: bytes = b"") -> Steps:
        """Settles deliveries in steps, also after the end of the session."""
        yield from settle_in_steps(self.peer.engine, self.core, ids, do)
        self._answer(answer)

    def _answer(self, answer: bytes) -> None:
        """Tells the client that deliveries are settled, once the journal has that: it may forget them then."""
        if answer and not self.gone:
            self.peer.pending_replies.send(answer, kept=True, channel=self.number)

    def _put_off(self, said: Disposition, last: int, state: TransactionalState) -> None:
        transaction, ids = self.peer.transactions.get(state.txn_id), self._ids(said.first, last)
        if transaction is None and not ids:
            return  # a client repeats it as it settles what its commit has settled already
        if transaction is None:
            raise LinkFault(Condition.UNKNOWN_ID, "there is no such transaction")
        try:
            do = self._outcome(state.outcome, settled=True)
            if do is None:
                text = "received is no outcome, and a transaction settles with one"
                raise SessionFault(Condition.INVALID_FIELD, text)
        except SessionFault as fault:
            text = f"an outcome in the transaction was refused: {fault}"
            transaction.spoil(Refused(Reason.PRECONDITION_FAILED, text))
            raise
        unknown = len(ids) <= last - said.first & MASK
        if self._has_gone_back(said.first, last) or (unknown and self._number(said.first) <= self._cut_upto):
            text = "the broker has ended the link of a delivery that it settles"
            transaction.spoil(Refused(Reason.PRECONDITION_FAILED, text))
        named = transaction.named(self.core)
        ids = [one for one in ids if one not in named]
        answer = b"" if said.settled else write_disposition(self.number, False, said.first, last, ACCEPTED)
        transaction.settle(self._settle(ids, do, answer), self.core, ids)

    def requeue(self, consumer: Subscription) -> None:
        ids = list(self.core.ids_of(consumer))
        super().requeue(consumer)
        self._remember(ids)

    def _remember(self, ids: list[int]) -> None:
        gone, before = self._gone_back, len(self._gone_back)
        gone |= dict.fromkeys(ids[-GONE_BACK_MAX:])
        while len(gone) > GONE_BACK_MAX:
            del gone[next(iter(gone))]
        self.session.tab.add(GONE_BACK, GONE_BACK_BYTES * (len(gone) - before))

    def _has_gone_back(self, first: int, last: int) -> bool:
        begin, count = self._number(first), (last - first & MASK) + 1
        self.peer.budget.left -= len(self._gone_back) // LOOK_SHARE
        return any(begin <= one < begin + count for one in self._gone_back)

    # -- the end ------------------------------------------------------------------------------------------------------

    def end(self, failure: LinkFault | None = None) -> None:
        """Ends the session, and says so. What is unsettled goes back to its queues."""
        self.close()
        self.peer.write(write(self.number, End(None if failure is None else self._error(failure))))

    def close(self) -> None:
        if self.gone:
            return
        self.gone = True
        for replies in (self.peer.pending_replies, self.peer.pending_links):
            self.peer.budget.left -= replies.drop_channel(self.number) // LOOK_SHARE
        self.links.leave()
        self.session.tab.add(GONE_BACK, -GONE_BACK_BYTES * len(self._gone_back))
        self.session.tab.add(SESSIONS, -SESSION_BYTES)
        self.peer.engine.broker.queues.close_channel(self.session, self.core, self.now())
