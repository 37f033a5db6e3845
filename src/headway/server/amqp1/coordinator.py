"""The link to the coordinator of transactions: it declares and discharges them.

What a transaction puts off is done at its discharge, in the order of peers/transaction.py. A delivery that is settled
in a transaction that fails stays with its client, unsettled.
"""

from __future__ import annotations

import secrets

from headway.core.base import ProtocolError, Refused
from headway.server.amqp1.faults import LinkFault, link_fault
from headway.server.amqp1.link import Link
from headway.server.amqp1.ports import SessionSide
from headway.server.connections import Steps
from headway.server.peers import Transaction
from headway.wire.amqp1.codes import Condition
from headway.wire.amqp1.items import Transfers
from headway.wire.amqp1.performatives import Attach, Declare, Discharge, Flow, build
from headway.wire.amqp1.replies import ACCEPTED, declared, rejected
from headway.wire.amqp1.sections import Body
from headway.wire.amqp1.values import Described, read

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
            raise LinkFault(Condition.TRANSACTION_ROLLBACK, str(error)) from error
        transaction.commit = self._commit(transaction, delivery_id)
        self._session.peer.budget.begin(transaction.commit)

    def _commit(self, transaction: Transaction, delivery_id: int) -> Steps:
        session, outcome = self._session, ACCEPTED
        try:
            yield from transaction.done(session.peer, lambda: session.peer.session is None)
        except Refused as error:  # what came before it stays
            outcome = rejected(Condition.TRANSACTION_ROLLBACK, str(error))
        if not session.gone:
            session.settle(delivery_id, delivery_id, outcome, kept=True)
