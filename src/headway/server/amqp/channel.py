"""One AMQP channel: its methods become commands to the broker, and the broker's answers become methods.

Methods that declare are in declaring.py, methods of consumers in consuming.py; the peer finds them. A channel keeps two
things that the core does not know: the commands that a transaction has put off (transaction.py), and the numbers of
confirms (publisher.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from functools import partial
from itertools import count
from typing import Any

from pamqp import base, commands

from headway.core.base import Refused, moved
from headway.core.clients import Queues
from headway.core.consumer import NO_LIMIT, Channel, Session, Subscription
from headway.core.log import CHANNELS
from headway.core.message import Run
from headway.core.permission import ALL_RIGHTS
from headway.server.amqp.ports import ChannelFault, ClientSide
from headway.server.amqp.publisher import Publisher
from headway.server.amqp.states import (
    CHANNEL_MOVES,
    CLOSED,
    COMMITTING,
    CONFIRMS,
    MODE_MOVES,
    OPEN,
    PAUSED,
    PLAIN,
    TRANSACTIONS,
    ChannelState,
)
from headway.server.connections import Steps
from headway.server.peers import (
    NO_TRANSACTION,
    PORTION,
    NoTransaction,
    Settle,
    Transaction,
    settle,
    settle_in_steps,
)
from headway.wire.amqp.replies import write_method
from headway.wire.amqp.scan import PublishedRun

CHANNEL_BYTES = 1200
PLACE_BYTES = 250
"""The memory of a consumer's places in the tables of its channel: they stay when it ends, for tables do not shrink."""
QUEUES_PER_WORK = 32
TAGS_PER_WORK = 8
"""How many queues are woken, and how many consumers are stopped or let go on, in the time of one unit of work."""
REPLIES_PER_WORK = 32
"""How many pending replies are looked at in that time."""


class AmqpChannel:
    __slots__ = (
        "_committing", "_most", "_publisher", "_transaction", "core", "last_queue", "mode", "number", "peer",
        "prefetch", "queues", "reply_queue", "session", "state", "tag_numbers", "tags",
    )  # fmt: skip

    def __init__(self, peer: ClientSide, session: Session, number: int) -> None:
        self.peer = peer
        self.session = session
        self.number = number
        self.queues: Queues = peer.engine.broker.queues
        session.tab.add(CHANNELS, CHANNEL_BYTES)
        self.core = Channel(NO_LIMIT, NO_LIMIT, number, session.number, session.channel.in_flight_bytes)
        self.core.whole = session.channel
        self.state = OPEN
        """Set by ``_become`` alone."""
        self.mode = PLAIN
        self.last_queue = ""
        """The queue declared last; methods without a queue name mean this one."""
        self.reply_queue = ""
        """The queue of this channel's direct replies."""
        self.prefetch = NO_LIMIT
        """Prefetch of later consumers (basic.qos)."""
        self.tags: dict[str, Subscription] = {}
        """Consumers by tag."""
        self._most = 0
        """So many consumers there were at once."""
        self.tag_numbers: Iterator[int] = count(1)
        """Numbers of the tags that the broker makes. None comes twice, so none has to be looked for."""
        self._publisher = Publisher(self, session)
        self._transaction: Transaction | NoTransaction = NO_TRANSACTION
        self._committing: Transaction | None = None
        """The transaction whose commit has begun and is not done."""

    def _become(self, state: ChannelState) -> None:
        self.state = moved(CHANNEL_MOVES, self.state, state)

    @property
    def gone(self) -> bool:
        """The channel is closed, by the client or by the broker."""
        return self.state is CLOSED or self.state is COMMITTING

    @property
    def flows(self) -> bool:
        """The client wants deliveries."""
        return self.state is OPEN

    def now(self) -> float:
        return self.peer.engine.now()

    def knows(self, queue: str) -> bool:
        return queue in self.peer.engine.broker.registry.router.queues

    def write(self, frame: bytes) -> None:
        if self.mode is not TRANSACTIONS:
            self.peer.write(frame)
        else:  # it must not overtake the reply to a commit
            self.peer.pending_replies.send(frame, kept=False, channel=self.number)

    def say(self, command: base.Frame) -> None:
        self.write(write_method(self.peer.version, self.number, command))

    def answer(self, asked: Any, command: base.Frame) -> None:
        if not asked.nowait:
            self.say(command)

    def send_when_kept(self, frame: bytes, *, kept: bool) -> None:
        """Sends a reply; if ``kept``, once the journal has what the reply says."""
        replies = self.peer.pending_replies if self.mode is TRANSACTIONS else self.peer.pending_declares
        replies.send(frame, kept=kept, channel=self.number)

    def wake(self) -> None:
        """Wakes the queues of this client, because its consumers may be able to take more."""
        self.peer.engine.broker.registry.wake(self.session)
        self.peer.budget.left -= len(self.session.queues) // QUEUES_PER_WORK

    def flow(self, command: commands.Channel.Flow) -> None:
        wanted = OPEN if command.active else PAUSED
        if self.state is not wanted:
            self._become(wanted)
            for subscription in self.tags.values():
                subscription.let_flow(self.flows)
            self.peer.budget.left -= len(self.tags) // TAGS_PER_WORK
            self.peer.engine.broker.fanout.again[self.session] = None
            self.wake()
        self.say(commands.Channel.FlowOk(command.active))

    def close(self) -> None:
        """Closes the channel. Unsettled deliveries are requeued; a transaction without a commit is dropped."""
        self._become(CLOSED if self._committing is None else COMMITTING)
        self._transaction.forget()
        self._transaction = NO_TRANSACTION
        for replies in (self.peer.pending_replies, self.peer.pending_declares):
            self.peer.budget.left -= replies.drop_channel(self.number) // REPLIES_PER_WORK
        self.tags.clear()
        if self._committing is None:
            self._publisher.over()
        else:
            self._committing.forget()
            self.peer.budget.running = None
            self.peer.engine.broker.registry.deferred.begin(
                self._committing.commit, self.now(), client=self.session, whole=True
            )
        self.session.tab.add(CHANNELS, -CHANNEL_BYTES - PLACE_BYTES * self._most)
        self.queues.close_channel(self.session, self.core, self.now())

    def keep(self, tag: str, subscription: Subscription) -> None:
        """Remembers a consumer."""
        self.tags[tag] = subscription
        if len(self.tags) > self._most:
            self._most = len(self.tags)
            self.session.tab.add(CHANNELS, PLACE_BYTES)

    # -- what a transaction can defer -------------------------------------------------------------------------------

    @property
    def named(self) -> Set[int]:
        """Deliveries that the commit will settle."""
        return self._transaction.named(self.core)

    def settle(self, tags: Sequence[int], *, multiple: bool, do: Settle, most: int = PORTION) -> None:
        """Settles deliveries, or all up to each. Which ones, and whether they can be settled, is found out now.
        ``most``: as many are settled in one step."""
        if multiple and max(len(tags), len(self.core.in_flight)) > PORTION:
            self.peer.budget.begin(self._settle_upto(tags, do))
            return
        for ids in map(self._upto, tags) if multiple else (tags,):
            if self.mode is TRANSACTIONS:
                self._put_off(ids, do)
            elif len(ids) <= most:
                self.peer.budget.left -= settle(self.peer.engine, ids, do)
            else:
                self.peer.budget.begin(self._settle(ids, do, sure=False))

    def _settle_upto(self, tags: Sequence[int], do: Settle) -> Steps:
        for tag in tags:
            if self.gone:
                return
            ids = self._upto(tag)
            if self.mode is TRANSACTIONS:
                self._put_off(ids, do)
            else:
                yield from self._settle(ids, do)
            yield 1 + len(self.core.in_flight) // PORTION

    def _put_off(self, tags: Sequence[int], do: Settle) -> None:
        for tag in tags:
            if tag in self.named or not self.core.holds(tag):
                raise unknown_tag(tag)
        self._transaction.settle(self._settle(tags, do), self.core, tags)

    def _settle(self, tags: Sequence[int], do: Settle, *, sure: bool = True) -> Steps:
        """Settles deliveries in steps. ``sure``: all of them were found before; those gone meanwhile are skipped."""
        steps = settle_in_steps(self.peer.engine, self.core, tags, do, sure=sure)
        while self.state is not CLOSED and (work := next(steps, None)) is not None:
            yield work

    def _upto(self, tag: int) -> list[int]:
        if tag and (tag in self.named or not self.core.holds(tag)):
            raise unknown_tag(tag)
        found, named = self.core.upto(tag), self.named
        return [known for known in found if known not in named] if named else found

    def acknowledge(self, tags: Sequence[int], *, multiple: bool) -> None:
        self.settle(tags, multiple=multiple, do=partial(self.queues.acknowledge, self.core))

    def publish(self, item: PublishedRun) -> None:
        run = self._publisher.checked(item)
        if self.mode is TRANSACTIONS:
            self._transaction.publish(self._publish(item, run, 0), [run], len(run.data) + len(item.properties))
            if self.session.rights is not ALL_RIGHTS:
                self._transaction.check_at_commit(partial(self._publisher.check_again, item, run))
            return
        stop, work = self._publisher.publish(item, run)
        self.peer.budget.left -= work - 1  # the command itself has counted as one
        if stop < len(run.ends):
            self.peer.budget.begin(self._publish(item, run, stop))

    def _publish(self, item: PublishedRun, run: Run, start: int) -> Steps:
        """Publishes the rest of a run in steps, and waits while its client has to. The publishes of a commit go on even
        if the channel is closed."""
        while start < len(run.ends):
            if self.state is CLOSED:
                return
            if self.peer.waits_with(run, start, gone=self.gone):
                yield 0
            else:
                start, work = self._publisher.publish(item, run, start)
                yield work

    def confirm(self, command: commands.Confirm.Select) -> None:
        if self.mode is TRANSACTIONS:
            raise ChannelFault("a channel with transactions has no confirms")
        self.mode = moved(MODE_MOVES, self.mode, CONFIRMS)
        self.answer(command, commands.Confirm.SelectOk())

    def tx_select(self, command: commands.Tx.Select) -> None:
        if self.mode is CONFIRMS:
            raise ChannelFault("a channel with confirms has no transactions")
        if self.mode is PLAIN:
            self._transaction = Transaction(self.session)
        self.mode = moved(MODE_MOVES, self.mode, TRANSACTIONS)
        self.say(commands.Tx.SelectOk())

    def _take_transaction(self) -> Transaction:
        transaction = self._transaction
        if isinstance(transaction, NoTransaction):
            raise ChannelFault("this channel has no transactions: there was no tx.select")
        self._transaction = Transaction(self.session)
        return transaction

    def tx_commit(self, command: commands.Tx.Commit) -> None:
        transaction = self._take_transaction()
        lost = next((tag for tag in transaction.named(self.core) if not self.core.holds(tag)), None)
        if lost is not None:
            transaction.forget()
            raise unknown_tag(lost)
        transaction.check_named()
        self._committing = transaction
        transaction.commit = self._commit(transaction)
        self.peer.budget.begin(transaction.commit)

    def _commit(self, transaction: Transaction) -> Steps:
        try:
            yield from transaction.done(self.peer, lambda: self.gone)
        except Refused:
            if not self.gone:  # nobody is left to be told
                raise
        finally:
            self._committing = None
        if self.gone:
            self._become(CLOSED)
            self._publisher.over()
            return
        done = write_method(self.peer.version, self.number, commands.Tx.CommitOk())
        self.peer.pending_replies.send(done, kept=True, channel=self.number)

    def tx_rollback(self, command: commands.Tx.Rollback) -> None:
        self._take_transaction().forget()
        self.say(commands.Tx.RollbackOk())


def unknown_tag(tag: int) -> ChannelFault:
    return ChannelFault(f"unknown delivery tag {tag}")
