"""Local transactions of JMS. A session has one at a time, and a connection one per session.

Messages and acknowledgements that name a transaction are put off until its commit, in one phase. If one of them is
refused the commit is, too, for the client may not have waited for an answer. A rollback drops them: what the
application had received stays in flight, for the client itself hands it out again. Distributed transactions (XA) are
refused.
"""

from __future__ import annotations

from functools import partial

from headway.core.base import Reason, Refused
from headway.core.permission import ALL_RIGHTS
from headway.server.connections import Steps
from headway.server.openwire.consuming import Consuming
from headway.server.openwire.faults import JmsFault
from headway.server.openwire.ports import ClientSide
from headway.server.openwire.publishing import Publishing
from headway.server.openwire.settling import LOOK_SHARE, Settling
from headway.server.peers import PeerPart, Transaction
from headway.wire.openwire.codes import AckType, TransactionStep
from headway.wire.openwire.commands import MessageAck, TransactionInfo
from headway.wire.openwire.marshalling import LocalTransactionId
from headway.wire.openwire.messages import Message
from headway.wire.openwire.replies import ROLLED_BACK, write_nothing_found, write_refusal, write_response

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
