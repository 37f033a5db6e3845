"""Publishing: a message of JMS becomes a record for each destination that it names.

Rules:
- A queue that is sent to is made if there is none. Topics are not made.
- The response to a message that the journal keeps is sent when the journal has it.
- A message in a transaction is published with its commit.
- Between the copies for the destinations of one message it looks for room. If the client leaves before there is any,
  the rest is lost, and the log says so.
- A producer with a window is told how many of its bytes were taken (ProducerAck), one message at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from weakref import WeakKeyDictionary

import msgspec

from headway.core.base import Reason, Refused
from headway.core.clients import queue_object
from headway.core.consumer import QueueTerms, Session
from headway.core.message import TOPICS, Record, Run, topic_of
from headway.core.permission import ALL_RIGHTS, Operation
from headway.core.routing import is_out_of_room, part_of
from headway.server.connections import SUBSCRIBE_WORK, Steps
from headway.server.engine import Engine
from headway.server.openwire.consuming import Consuming
from headway.server.openwire.ports import ClientSide, JmsFault, each_of
from headway.server.openwire.settling import LOOK_SHARE, Settling
from headway.server.peers import PeerPart, Transaction, check_copies, check_topic, topic_named
from headway.server.protocols import QUEUES
from headway.wire.codecs import queue_form
from headway.wire.common import Address, CommonProperties, run_to
from headway.wire.openwire.alike import Series
from headway.wire.openwire.codes import AckType, TransactionStep, Type
from headway.wire.openwire.commands import DestinationInfo, MessageAck, TransactionInfo
from headway.wire.openwire.decoder import Sent
from headway.wire.openwire.marshalling import Destination, LocalTransactionId, ProducerId
from headway.wire.openwire.messages import RECENT, Message
from headway.wire.openwire.replies import (
    DESTINATION_ERROR,
    ROLLED_BACK,
    advisory_of,
    advisory_topic,
    write_nothing_found,
    write_producer_ack,
    write_refusal,
    write_response,
)

# -- publishing --------------------------------------------------------------------------------------------------------


RETAIN = "ActiveMQ.Retain"
"""The property by which a publisher asks for its message to be retained."""
PRODUCERS_MAX = 65_536
PRODUCERS = "producers"
PRODUCER_BYTES = 400
"""The memory of a producer with a window, besides the text of its id."""
SERIES_SHARE = 4
"""So many messages that are alike are a unit of work, besides their way to their lanes."""
MESSAGE_WORK = 8
"""Work of reading a message and writing its properties, besides its way to its lanes."""
COPIED_BYTES = 8192
"""So many bytes that are copied are one unit of work."""


class Publishing(PeerPart[ClientSide]):
    __slots__ = ("_windows", "session")

    def __init__(self, peer: ClientSide) -> None:
        super().__init__(peer)
        self.session: Session
        """Set when the client is let in."""
        self._windows: dict[ProducerId, int] = {}
        """Producers that have windows, and the bytes of each."""

    def add_producer(self, producer: ProducerId, window_bytes: int) -> None:
        """Notes a producer. Raises :class:`Refused`."""
        if window_bytes <= 0:
            return
        if len(self._windows) >= PRODUCERS_MAX:
            raise Refused(Reason.CLIENT_MEMORY, f"a connection may have {PRODUCERS_MAX} producers with windows")
        size = 0 if producer in self._windows else _bytes_of(producer)
        self.session.tab.check(size)
        self.session.tab.add(PRODUCERS, size)
        self._windows[producer] = window_bytes

    def remove_producer(self, producer: ProducerId) -> None:
        if self._windows.pop(producer, None) is not None:
            self.session.tab.add(PRODUCERS, -_bytes_of(producer))

    def check_destination(self, destination: Destination) -> None:
        """Raises :class:`Refused` if a producer of a queue could not send to it."""
        for part in each_of(destination):
            if not part.is_topic:
                self._peer.make_queue(part)

    def runs_of(self, message: Message) -> list[Run]:
        """Returns a run for each destination. Makes queues that there are not. Raises :class:`Refused`."""
        peer = self._peer
        check_copies(message.common.headers)
        common = self._of_its_user(message.common)
        properties = queue_form().write_common(common)
        RECENT.remember(properties, common)
        runs = [self._run_to(part, message) for part in each_of(message.destination)]
        for run in runs:
            run.properties, run.qos = properties, int(message.common.persistent)
            run.headers = dict(message.common.headers) or None
            run.retain = message.common.headers.get(RETAIN) is True
            if message.expires_ms > 0:
                now = peer.engine.now()
                run.expires_s = message.expires_ms / 1000 - peer.engine.broker.registry.wall_offset_s
                run.expires_s = max(run.expires_s, now)
            if not (message.destination.is_temporary and message.destination.name.startswith("ID:")):
                peer.queues.check_publish(run)
        return runs

    def _of_its_user(self, common: CommonProperties) -> CommonProperties:
        """Returns the properties with the name by which the client has logged in, if the message has another: the
        provider sets it (JMS 1.1, 3.5.9), and who forwards a message sends that of its first sender."""
        user = self._peer.identity.user or self.session.username
        if common.user_id is None or user in (None, common.user_id):
            return common
        return msgspec.structs.replace(common, user_id=user)

    def _run_to(self, destination: Destination, message: Message) -> Run:
        self._check_address(destination)
        is_topic = destination.is_topic
        address = Address(topic_named(destination.name) if is_topic else destination.name, is_topic)
        payload = message.payload
        return run_to(address, payload, [len(payload)], [0])

    def publish(self, sent: Sent) -> None:
        """Publishes a message outside of a transaction, and responds. Raises :class:`Refused`."""
        self._peer.budget.left -= MESSAGE_WORK
        runs = self.runs_of(sent.message)
        for run in runs:
            run.confirmed = sent.wants_response
        if len(runs) == 1 and not self._peer.waits_with(runs[0]):
            self.answer(sent, kept=self.publish_run(runs[0]))
        else:
            self._peer.budget.begin(self._copies(sent, runs))

    def _copies(self, sent: Sent, runs: list[Run]) -> Steps:
        """Publishes a message to each of its destinations, and looks for room in between. A client that has left does
        not wait for that: what there is no room for is lost, as is all that it had not sent by then."""
        kept = False
        for number, run in enumerate(runs):
            waited = False
            while self._peer.waits_with(run, gone=self._peer.gone):
                waited = waited or is_out_of_room(self.session.paused_by)
                yield 0
            if self._peer.left_without_room(self.session, runs[number:], gone=self._peer.gone, waited=waited):
                raise Refused(Reason.MEMORY_LIMIT, "the client leaves, and there is no room for what it published")
            kept = self.publish_run(run) or kept
            yield 1 + len(run.data) // COPIED_BYTES
        self.answer(sent, kept=kept)

    def publish_run(self, run: Run) -> bool:
        """Publishes a run of one record. Returns whether the journal keeps it. Raises :class:`Refused`."""
        peer = self._peer
        broker, now = peer.engine.broker, peer.engine.now()
        if run.retain and run.exchange == TOPICS:
            _, taken, work, refused, *_ = broker.intake.publish_some(self.session, [run], now, 0)
            peer.budget.left -= work - 1
            if refused is not None:
                raise refused
            return True
        done, taken, accepted, work, _, refused, feeds = broker.intake.publish_slice(self.session, run, now)
        peer.budget.left -= work - 1
        if refused is not None:
            raise refused
        if not accepted:
            raise Refused(Reason.QUEUE_LENGTH, "the queue is full, and refuses what comes")
        if taken:
            peer.pace(taken, feeds)
        return done.journaled or run.retain

    def publish_series(self, series: Series) -> None:
        """Publishes messages of one producer that are alike, and responds. Raises :class:`Refused`."""
        peer, run, common = self._peer, series.run, series.common
        self._check_address(series.destination)
        RECENT.note(series.own.numbering)
        check_copies(common.headers)
        run.headers = dict(common.headers) or None
        if not (series.destination.is_temporary and series.destination.name.startswith("ID:")):
            peer.queues.check_publish(run)
        retain = common.headers.get(RETAIN) is True
        peer.budget.left -= len(run) // SERIES_SHARE
        peer.budget.begin(self._series_steps(series, run, retain=retain))

    def _series_steps(self, series: Series, run: Run, *, retain: bool) -> Steps:
        """Publishes a series in steps, and waits while the client has to. All that is not refused is published."""
        peer, intake = self._peer, self._peer.engine.broker.intake
        run.confirmed, kept, start, refused = series.wants_response, retain, 0, list[Refused]()
        while start < len(run):
            if peer.waits_with(run, start, gone=peer.gone):
                yield 0
                continue
            if retain:
                one = part_of(run, start, start + 1)
                one.retain, work = True, 1
                try:
                    self.publish_run(one)
                except Refused as error:
                    refused.append(error)
                start += 1
            else:
                done, taken, accepted, work, start, refusal, feeds = intake.publish_slice(
                    self.session, run, peer.engine.now(), start
                )
                kept = kept or done.journaled
                if refusal is not None:
                    refused.append(refusal)
                elif accepted < len(done):
                    refused.append(Refused(Reason.QUEUE_LENGTH, "the queue is full, and refuses what comes"))
                elif taken:
                    peer.pace(taken, feeds)
            if start < len(run):
                yield work
            else:
                peer.budget.left -= work
        if refused:
            raise refused[-1]
        self._answer(series, series.producer, series.size, kept=kept)

    def _check_address(self, destination: Destination) -> None:
        """Makes the queue of a destination that is not composite, if there is none. Raises :class:`Refused`."""
        if not destination.is_topic:
            self._peer.make_queue(destination)
        else:
            check_topic(topic_named(destination.name), self.session, self._peer.engine)

    def steps(self, runs: list[Run]) -> Steps:
        """Publishes the runs of a transaction's message, one in each step, and waits while the client has to."""
        for run in runs:
            while self._peer.waits_with(run, gone=self._peer.gone):
                yield 0
            self.publish_run(run)
            yield 1 + len(run.data) // COPIED_BYTES

    def answer(self, sent: Sent, *, kept: bool) -> None:
        self._answer(sent, sent.message.producer, sent.message.size, kept=kept)

    def _answer(self, item: Sent | Series, producer: ProducerId | None, size: int, *, kept: bool) -> None:
        replies = self._peer.pending_replies
        if item.wants_response:
            replies.send(write_response(item.number), kept=kept)
        elif producer is not None and producer in self._windows:
            replies.send(write_producer_ack(producer, size), kept=kept)


def _bytes_of(producer: ProducerId) -> int:
    return PRODUCER_BYTES + 4 * len(producer.connection)


# -- temporaries -------------------------------------------------------------------------------------------------------
#
# Temporary queues and topics of JMS. The client names them, below its connection's id; they end with the connection,
# and only it may consume from them. Whoever knows the name may send to it, for only its owner told it.
#
# Every client of JMS follows two advisory topics, by which it knows which temporary destinations there are: it sends to
# no other. So it is told of those that there are when it begins to follow, and of changes from then on.


TELL_WORK = 8
TERMS = QueueTerms(exclusive=True)
OWN_IDS = "ID:"
"""Ids of connections that libraries make begin so. A client that chooses another id could take any queue's name."""
TEMPORARIES_MAX = 4096
"""Those of one connection."""
NAME_CHARS_MAX = 1255
"""A connection's id, and 255 more."""
TEMPORARIES = "temporaries"
TEMPORARY_BYTES = 1000
"""The memory of a temporary destination, besides its name and its queue."""
_ALL: WeakKeyDictionary[Engine, dict[Destination, None]] = WeakKeyDictionary()


class Temporaries(PeerPart[ClientSide]):
    """The temporary destinations of one connection, and a view of all there are."""

    __slots__ = ("_all", "_own")

    def __init__(self, peer: ClientSide) -> None:
        super().__init__(peer)
        self._all = _ALL.setdefault(peer.engine, {})
        self._own: dict[Destination, None] = {}

    def over(self) -> None:
        """Ends the temporary destinations, because the connection has ended. Others are told over the turns to come."""
        gone = [one for one in self._own if self._all.pop(one, self) is None]
        self._own.clear()
        engine = self._peer.engine
        super().over()
        if gone:
            engine.broker.registry.deferred.begin(_tell_all(engine, gone), engine.now())

    def carry_out(self, asked: DestinationInfo) -> None:
        """Makes or ends a destination. Raises :class:`JmsFault`, :class:`Refused`."""
        destination = asked.destination
        if not destination.is_temporary:
            if asked.removes:
                raise JmsFault("queues and topics are deleted by operators, not by clients of JMS")
            for part in each_of(destination):
                if part.kind is Type.QUEUE:
                    self._peer.named(part)
        elif asked.removes:
            self._remove(destination)
        else:
            self._add(destination)

    def _add(self, destination: Destination) -> None:
        peer = self._peer
        if len(self._own) >= TEMPORARIES_MAX:
            raise Refused(Reason.TOO_MANY_QUEUES, f"a connection may have {TEMPORARIES_MAX} temporary destinations")
        if len(destination.name) > NAME_CHARS_MAX:
            text = f"a name of {len(destination.name)} characters (at most {NAME_CHARS_MAX})"
            raise JmsFault(text, DESTINATION_ERROR)
        if not destination.name.startswith(f"{peer.connection_id}:"):
            raise JmsFault(f"{destination} is not named after its connection", DESTINATION_ERROR)
        if destination.kind is Type.TEMP_QUEUE and not destination.name.startswith(OWN_IDS):
            peer.granted.rights.check(Operation.DECLARE, queue_object(destination.name))
        peer.budget.left -= SUBSCRIBE_WORK
        session = peer.granted
        size = _bytes_of_destination(destination)
        session.tab.check(size)
        if destination.kind is Type.TEMP_QUEUE:
            peer.queues.queues.declare(session, destination.name, TERMS, QUEUES.dialect, peer.engine.now())
        if destination not in self._own:
            session.tab.add(TEMPORARIES, size)
        self._own[destination] = self._all[destination] = None
        peer.budget.left -= _tell(peer.engine, destination, removed=False)

    def _remove(self, destination: Destination) -> None:
        if destination not in self._own:
            return
        peer = self._peer
        peer.granted.tab.add(TEMPORARIES, -_bytes_of_destination(destination))
        del self._own[destination]
        if self._all.pop(destination, self) is None:
            peer.budget.left -= _tell(peer.engine, destination, removed=True)
        peer.budget.left -= SUBSCRIBE_WORK
        queue = peer.queues.found(destination.name)
        if destination.kind is Type.TEMP_QUEUE and queue is not None:
            peer.queues.queues.delete(queue, peer.engine.now(), by=peer.granted)

    def check_owner(self, destination: Destination) -> None:
        """Raises :class:`JmsFault` if the client may not consume from a temporary destination."""
        if destination.is_temporary and destination not in self._own:
            raise JmsFault(f"{destination} is of another connection, or has ended", DESTINATION_ERROR)

    def check_there(self, destination: Destination) -> None:
        """Raises :class:`JmsFault` if a temporary queue has ended."""
        if destination not in self._all:
            raise JmsFault(f"{destination} has ended", DESTINATION_ERROR)

    def known(self, topic: str) -> Iterator[Record]:
        """Yields what a client that begins to follow one of the advisory topics has to know."""
        for destination in list(self._all):
            if topic_of(advisory_topic(destination)) == topic and destination in self._all:
                yield advisory_of(destination, removed=False)


def _bytes_of_destination(destination: Destination) -> int:
    return TEMPORARY_BYTES + 4 * len(destination.name)


def _tell(engine: Engine, destination: Destination, *, removed: bool) -> int:
    """Returns the work."""
    run = advisory_of(destination, removed=removed).run()
    return TELL_WORK + engine.broker.intake.publish_to(None, run, engine.now()).work


def _tell_all(engine: Engine, gone: list[Destination]) -> Steps:
    for destination in gone:
        yield _tell(engine, destination, removed=True)


# -- transactions ------------------------------------------------------------------------------------------------------
#
# Local transactions of JMS. A session has one at a time, and a connection one per session.
#
# Messages and acknowledgements that name a transaction are put off until its commit, in one phase. If one of them is
# refused the commit is, too, for the client may not have waited for an answer. A rollback drops them: what the
# application had received stays in flight, for the client itself hands it out again. Distributed transactions (XA) are
# refused.


TRANSACTIONS_MAX = 4096


class Transactions(PeerPart[ClientSide]):
    __slots__ = ("_committing", "_consuming", "_open", "_publishing", "_settling")

    def __init__(self, peer: ClientSide, publishing: Publishing, consuming: Consuming, settling: Settling) -> None:
        super().__init__(peer)
        self._publishing = publishing
        self._consuming = consuming
        self._settling = settling
        self._open: dict[LocalTransactionId, Transaction] = {}
        self._committing: Transaction | None = None

    def over(self) -> None:
        """Drops the transactions whose commits have not begun, because the connection has ended."""
        for transaction in self._open.values():
            transaction.forget()
        self._open.clear()
        if self._committing is not None:
            self._committing.forget()
        del self._publishing, self._consuming, self._settling
        super().over()

    def carry_out(self, number: int, asked: TransactionInfo, *, wants_response: bool) -> None:
        """Begins, commits or rolls back. Raises :class:`JmsFault`."""
        peer, known = self._peer, asked.transaction
        if asked.step == TransactionStep.RECOVER:
            peer.pending_replies.send(write_nothing_found(number), kept=False)
            return
        if not isinstance(known, LocalTransactionId):
            raise JmsFault("distributed transactions (XA) are not offered here")
        match asked.step:
            case TransactionStep.BEGIN:
                self._begin(known)
            case TransactionStep.COMMIT:
                self._commit(number, known, wants_response=wants_response)
                return
            case TransactionStep.ROLLBACK | TransactionStep.FORGET:
                self._forget(known)
            case TransactionStep.END:
                pass
            case _:
                raise JmsFault("a local transaction has one phase")
        if wants_response:
            peer.pending_replies.send(write_response(number), kept=False)

    def _begin(self, known: LocalTransactionId) -> None:
        if len(self._open) >= TRANSACTIONS_MAX:
            raise Refused(Reason.CLIENT_MEMORY, f"a connection may have {TRANSACTIONS_MAX} transactions at once")
        if known not in self._open:
            self._open[known] = Transaction(self._peer.granted)

    def _of(self, known: LocalTransactionId) -> Transaction:
        transaction = self._open.get(known)
        if transaction is None:
            raise JmsFault(f"there is no transaction {known.value}", ROLLED_BACK)
        return transaction

    def _forget(self, known: LocalTransactionId) -> None:
        transaction = self._open.pop(known, None)
        if transaction is not None:
            transaction.forget()

    def spoil(self, known: LocalTransactionId | None, why: str) -> None:
        """Notes that something in a transaction was refused."""
        if known is not None and known in self._open:
            self._open[known].spoil(Refused(Reason.PRECONDITION_FAILED, why))

    def send(self, message: Message) -> None:
        """Puts a message off. Raises :class:`JmsFault`, :class:`Refused`."""
        assert message.transaction is not None
        transaction = self._of(message.transaction)
        runs = self._publishing.runs_of(message)
        size = sum(len(run.data) + run.properties.size for run in runs)
        transaction.publish(self._publishing.steps(runs), runs, size)
        if self._peer.granted.rights is not ALL_RIGHTS:
            for run in runs:
                transaction.check_at_commit(partial(self._peer.queues.check_publish, run))

    def settle(self, ack: MessageAck) -> None:
        """Puts an acknowledgement off, if it settles something. Raises :class:`JmsFault`, :class:`Refused`."""
        assert ack.transaction is not None
        consumer = self._consuming.by_id.get(ack.consumer)
        if ack.kind in (AckType.DELIVERED, AckType.REDELIVERED, AckType.POISON):
            self._settling.settle(ack)
            return
        if consumer is None:
            if ack.consumer in self._consuming.closed:
                self.spoil(ack.transaction, "the broker has closed the consumer of what it took")
            return
        transaction, ids = self._of(ack.transaction), self._settling.ids_of(consumer, ack)
        self._peer.budget.left -= (len(ids) + len(consumer.channel.in_flight)) // LOOK_SHARE
        transaction.settle(self._settling.steps(consumer, ack, ids), consumer.channel, ids)

    def _commit(self, number: int, known: LocalTransactionId, *, wants_response: bool) -> None:
        transaction = self._of(known)
        del self._open[known]
        try:
            transaction.check_named()
        except Refused as error:
            raise JmsFault(f"the transaction is rolled back: {error}", ROLLED_BACK) from error
        self._committing = transaction
        self._peer.budget.begin(self._done(number, transaction, wants_response=wants_response))

    def _done(self, number: int, transaction: Transaction, *, wants_response: bool) -> Steps:
        peer, answer = self._peer, write_response(number) if wants_response else b""
        try:
            yield from transaction.done(peer, lambda: peer.gone)
        except Refused as error:
            if not transaction.begun:
                raise JmsFault(f"the transaction is rolled back: {error}", ROLLED_BACK) from error
            answer = write_refusal(number, ROLLED_BACK, str(error))  # what came before it stays
        finally:
            self._committing = None
        if answer and not peer.gone:
            peer.pending_replies.send(answer, kept=True)
