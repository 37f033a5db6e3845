"""The links of one session, by the client's handles, which are the broker's, too. They have a limit on each connection,
and are counted to their client.
"""

from __future__ import annotations

import secrets

from headway.core.base import ProtocolError, Refused
from headway.core.consumer import NO_LIMIT, Session, Subscription
from headway.core.queue import Queue, larger_than
from headway.server.amqp1.consuming import ConsumingLink
from headway.server.amqp1.ports import ClientSide, Link, LinkFault, SessionSide, credit_of, link_fault
from headway.server.amqp1.terminus import Node, place_of, wishes_of
from headway.server.connections import SUBSCRIBE_WORK, Steps
from headway.server.peers import Transaction
from headway.server.protocols import QUEUES
from headway.wire.amqp1.envelope import Amqp1Envelope
from headway.wire.amqp1.items import Body, Transfers
from headway.wire.amqp1.performatives import Attach, Declare, Discharge, Flow, Source, build
from headway.wire.amqp1.replies import ACCEPTED, declared, rejected
from headway.wire.amqp1.values import Condition, Described, read

# -- browsing ----------------------------------------------------------------------------------------------------------
#
# Links that browse a queue (distribution mode ``copy``): a client looks at the messages that wait, and takes none.
#
# It sees those that wait when it begins, the first ``MESSAGES_MAX`` of them and ``BYTES_MAX`` bytes, as far as it gives
# credit. It settles nothing: what it says of them is ignored.


MESSAGES_MAX = 400
BYTES_MAX = 4 * 1024 * 1024
COPIED_BYTES = 8192
"""So many bytes that are copied are one unit of work."""
BROWSED = "browsed"
BROWSED_BYTES = 150
"""The memory of a copy of a message, besides its bytes."""


class BrowsingLink(Link):
    __slots__ = ("_bytes", "_credit", "_envelope", "_sent", "_waiting")

    def __init__(self, session: SessionSide, attach: Attach) -> None:
        super().__init__(session, attach)
        self._envelope = Amqp1Envelope(
            session.number, attach.handle, session.peer.frame_bytes_max, settled=attach.snd_settle_mode == 1,
            decode=QUEUES.dialect.decode,
        )  # fmt: skip
        self._waiting: list[tuple[bytes, int]] = []
        self._credit = self._sent = self._bytes = 0

    def begin(self, queue: Queue, source: Source) -> Attach:
        """Looks at what waits. Returns the attach as it is in force. Raises LinkFault, Refused."""
        peer = self._session.peer
        if wishes_of(source, self.attach.properties).options:
            raise LinkFault(Condition.NOT_IMPLEMENTED, "a browser of a queue sees all of it: it takes no filter")
        peer.queues.check_read(queue)
        waiting = queue.waiting(MESSAGES_MAX, BYTES_MAX, self._session.now())[::-1]
        size = sum(BROWSED_BYTES + len(frame) for frame, _ in waiting)
        peer.budget.left -= SUBSCRIBE_WORK + len(waiting) + size // COPIED_BYTES
        self._session.session.tab.check(size)
        self._waiting = waiting
        self._count(size)
        return self.attach._replace(source=source._replace(filter=None), initial_delivery_count=0, properties=None)

    def flow(self, flow: Flow) -> None:
        if flow.link_credit is not None:
            self._credit = credit_of(flow, self._sent)
            if not self.let_on():
                return
            if flow.drain:
                self._sent, self._credit = self._sent + self._credit, 0
                self._session.say_flow(self.handle, self._sent & 0xFFFF_FFFF, 0, available=0, drain=True)
        if flow.echo:
            left = len(self._waiting)
            self._session.say_flow(self.handle, self._sent & 0xFFFF_FFFF, self._credit, available=left)

    def let_on(self) -> bool:
        """Sends as many messages as the client permits. Returns False if the link ends at one that is too large."""
        session, envelope, largest = self._session, self._envelope, self.attach.max_message_size or NO_LIMIT
        while self._waiting and self._credit > 0 and session.core.frames_left > 0:
            frame, returns = self._waiting.pop()
            self._count(-BROWSED_BYTES - len(frame))
            cut = envelope.cut(frame, [len(frame)], redelivered=returns)
            if not cut.count_within(1, largest):
                session.end_link(self.handle, Condition.MESSAGE_SIZE_EXCEEDED, larger_than(len(cut.pieces[0]), largest))
                return False
            session.peer.write(envelope.write(cut, 0, 1, session.core.take_ids(1)))
            session.frames_sent(envelope.frames_of(cut, 1))
            self._credit -= 1
            self._sent += 1
            session.peer.budget.left -= 1
        return True

    def _count(self, change: int) -> None:
        """Counts the copies of messages that the client has not taken."""
        self._bytes += change
        self._session.session.tab.add(BROWSED, change)

    def end(self, *, closed: bool) -> None:
        self.leave()
        super().end(closed=closed)

    def leave(self) -> None:
        """Drops what the client has not taken."""
        self._waiting.clear()
        self._count(-self._bytes)


def queue_to_browse(session: SessionSide, source: Source) -> Queue | None:
    """Returns the queue that a client wants to browse; None: it wants none, or means topics, of which each gets its own
    copy anyway. Raises LinkFault, Refused."""
    if source.distribution_mode != "copy" or source.dynamic:
        return None
    peer = session.peer
    place = place_of(peer.engine, peer.granted.rights, source.address, source.capabilities, filter=True)
    return peer.queues.named(place.name) if place.node is Node.QUEUE else None


# -- coordinator -------------------------------------------------------------------------------------------------------
#
# The link to the coordinator of transactions: it declares and discharges them.
#
# What a transaction puts off is done at its discharge, in the order of peers/transaction.py. A delivery that is settled
# in a transaction that fails stays with its client, unsettled.


CREDIT = 100
TRANSACTIONS_MAX = 256
"""Transactions of one connection at a time."""


class CoordinatorLink(Link):
    __slots__ = ("_count", "_declared")

    def __init__(self, session: SessionSide, attach: Attach) -> None:
        super().__init__(session, attach)
        self._count = attach.initial_delivery_count or 0
        self._declared: set[bytes] = set()
        """The transactions that it has declared; some may be discharged."""

    def give_credit(self) -> None:
        self._session.say_flow(self.handle, self._count, CREDIT)

    def flow(self, flow: Flow) -> None:
        if flow.echo:
            self.give_credit()

    def lost(self, first_id: int, condition: Condition, text: str) -> None:
        self._session.settle(first_id, first_id, rejected(condition, text))

    def end(self, *, closed: bool) -> None:
        self.leave()
        super().end(closed=closed)

    def leave(self) -> None:
        """Drops the transactions that the link has declared; they fail (4.1)."""
        transactions = self._session.peer.transactions
        for txn_id in self._declared & transactions.keys():
            transactions.pop(txn_id).forget()
        self._declared.clear()

    def publish(self, item: Transfers) -> None:
        for index in range(len(item.run)):
            self._count = self._count + 1 & 0xFFFF_FFFF
            self._one(item, item.first_id + index, item.run.payload(index))
        self.give_credit()

    def _one(self, item: Transfers, delivery_id: int, raw: bytes) -> None:
        asked = None
        if item.content.body is Body.SECTIONS:
            section, _ = read(raw, 0, len(raw))
            asked = build(section.value) if isinstance(section, Described) else None
        try:
            match asked:
                case Declare():
                    self._session.settle(delivery_id, delivery_id, declared(self._declare()))
                case Discharge(txn_id, fail):
                    self._discharge(delivery_id, txn_id, fail=bool(fail))
                case _:
                    text = "a coordinator takes declare and discharge"
                    raise LinkFault(Condition.NOT_ALLOWED, text)
        except (LinkFault, Refused, ProtocolError) as error:
            fault = link_fault(error)
            self._session.settle(delivery_id, delivery_id, rejected(fault.condition, str(fault)))

    def _declare(self) -> bytes:
        peer = self._session.peer
        if len(peer.transactions) >= TRANSACTIONS_MAX:
            text = f"there are {TRANSACTIONS_MAX} transactions of this connection"
            raise LinkFault(Condition.RESOURCE_LIMIT_EXCEEDED, text)
        txn_id = secrets.token_bytes(8)
        self._declared = (self._declared & peer.transactions.keys()) | {txn_id}
        peer.transactions[txn_id] = Transaction(self._session.session)
        return txn_id

    def _discharge(self, delivery_id: int, txn_id: bytes, *, fail: bool) -> None:
        transaction = self._session.peer.transactions.pop(txn_id, None)
        if transaction is None:
            raise LinkFault(Condition.UNKNOWN_ID, "there is no such transaction")
        if fail:
            transaction.forget()
            self._session.settle(delivery_id, delivery_id, ACCEPTED)
            return
        try:
            transaction.check_named()
        except Refused as error:
            raise LinkFault(Condition.ROLLBACK, str(error)) from error
        transaction.commit = self._commit(transaction, delivery_id)
        self._session.peer.budget.begin(transaction.commit)

    def _commit(self, transaction: Transaction, delivery_id: int) -> Steps:
        session, outcome = self._session, ACCEPTED
        try:
            yield from transaction.done(session.peer, lambda: session.peer.session is None)
        except Refused as error:  # what came before it stays
            outcome = rejected(Condition.ROLLBACK, str(error))
        if not session.gone:
            session.settle(delivery_id, delivery_id, outcome, kept=True)


# -- links -------------------------------------------------------------------------------------------------------------


LINKS_MAX = 4096
"""Links of a connection, on all of its sessions."""
LINKS = "links"
END_WORK = 16
LINK_BYTES = 3000
"""The memory of a link, besides its name and its consumer."""
PLACE_BYTES = 300
"""The memory of a link's places in the tables of its session: they stay when it ends, for tables do not shrink."""


class Links(dict[int, Link]):
    __slots__ = ("_by_name", "_most", "_peer", "_session")

    def __init__(self, peer: ClientSide, session: Session) -> None:
        super().__init__()
        self._peer = peer
        self._session = session
        self._by_name: dict[tuple[object, bool], Link] = {}
        """The same links, by their names and the client's roles."""
        self._most = 0
        """So many links there were at once."""

    def check_room(self, attach: Attach) -> None:
        """Raises LinkFault, Refused if the client may not have one more."""
        if self._peer.links >= LINKS_MAX:
            raise LinkFault(Condition.RESOURCE_LIMIT_EXCEEDED, f"a connection may have {LINKS_MAX} links")
        self._session.tab.check(_bytes_of(attach))

    def keep(self, link: Link) -> None:
        """Remembers a link, and of what its client said of it only what is still needed."""
        attach = link.attach
        link.attach = attach._replace(
            source=None, target=None, unsettled=None, offered_capabilities=None, desired_capabilities=None,
            properties=None,
        )  # fmt: skip
        self[link.handle] = self._by_name[(attach.name, attach.role)] = link
        self._peer.links += 1
        self._session.tab.add(LINKS, _bytes_of(attach))
        if len(self) > self._most:
            self._most = len(self)
            self._session.tab.add(LINKS, PLACE_BYTES)

    def forget(self, link: Link) -> None:
        del self[link.handle], self._by_name[(link.name, link.attach.role)]
        self._peer.links -= 1
        self._session.tab.add(LINKS, -_bytes_of(link.attach))

    def named(self, attach: Attach) -> Link | None:
        """Returns the link of this name and role; None: there is none."""
        return self._by_name.get((attach.name, attach.role))

    def of(self, consumer: Subscription) -> ConsumingLink | None:
        label = consumer.request.name
        link = self._by_name.get((label[1], True)) if isinstance(label, tuple) else None
        return link if isinstance(link, ConsumingLink) and link.consumer is consumer else None

    def leave(self) -> None:
        """Forgets all, because their session ends, which requeues what is unsettled. Queues that end with their links
        are deleted over the turns to come."""
        own = []
        for link in list(self.values()):
            if isinstance(link, BrowsingLink | CoordinatorLink):
                link.leave()
            elif isinstance(link, ConsumingLink) and link.own is not None:
                own.append(link.own)
            self.forget(link)
        self._session.tab.add(LINKS, -PLACE_BYTES * self._most)
        if own:
            engine = self._peer.engine
            engine.broker.registry.deferred.begin(self._delete(own), engine.now(), client=self._session)

    def _delete(self, own: list[Queue]) -> Steps:
        engine = self._peer.engine
        for queue in own:
            if not queue.ended:
                engine.broker.queues.delete(queue, engine.now(), by=self._session)
            yield END_WORK


def _bytes_of(attach: Attach) -> int:
    """Returns the memory that a link takes up, about."""
    return LINK_BYTES + 4 * len(attach.name)
