"""One AMQP channel: its methods become commands to the broker, and its answers methods.

What is declared and what is consumed stands in modules of their own. Two kinds of state are kept here and in the
publisher, and nowhere else: what a transaction has put off, and the numbers of confirms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pamqp import base, commands

from headway.core.channel import NO_LIMIT, Channel
from headway.core.queues import Queues
from headway.core.record import Run
from headway.core.session import Session
from headway.core.subscription import Subscription
from headway.core.tab import TRANSACTIONS
from headway.server.amqp import consuming, declaring
from headway.server.amqp.faults import ChannelFault, connection_fault
from headway.server.amqp.publisher import Publisher
from headway.server.share import Steps
from headway.wire.amqp.codes import Code
from headway.wire.amqp.items import Publish
from headway.wire.amqp.replies import write_method

if TYPE_CHECKING:
    from headway.server.amqp.peer import AmqpPeer

STEP_BYTES = 600
ID_BYTES = 100
"""What a step that is put off takes up, and a delivery that it settles."""


class AmqpChannel:
    __slots__ = (
        "_publisher", "_put_off", "_put_off_bytes", "closing", "core", "flows", "last_queue", "named", "number", "peer",
        "prefetch", "queues", "reply_queue", "session", "tags",
    )  # fmt: skip

    def __init__(self, peer: AmqpPeer, session: Session, number: int) -> None:
        self.peer = peer
        self.session = session
        self.number = number
        self.queues: Queues = peer.engine.broker.queues
        self.core = Channel(NO_LIMIT, NO_LIMIT, number, session.number)
        self.core.whole = session.channel
        self.closing = False
        """We have closed it, and the client has not said that it knows."""
        self.flows = True
        """The client wants to be delivered to."""
        self.last_queue = ""
        """The last one declared: that is meant where a queue has no name."""
        self.reply_queue = ""
        """Where its direct replies go."""
        self.prefetch = NO_LIMIT
        """Of consumers to come."""
        self.tags: dict[str, Subscription] = {}
        """Its consumers."""
        self._publisher = Publisher(self, session)
        self._put_off: list[Callable[[], None]] | None = None
        """What is to be done at the transaction's commit; None: there are no transactions."""
        self._put_off_bytes = 0
        self.named: set[int] = set()
        """Deliveries that are to be settled then."""

    def now(self) -> float:
        return self.peer.engine.now()

    def knows(self, queue: str) -> bool:
        return queue in self.peer.engine.broker.registry.router.queues

    def handle(self, command: base.Frame) -> None:
        do = METHODS.get(type(command))
        if do is None:
            raise connection_fault(Code.COMMAND_INVALID, f"{command.name} is not expected now")
        do(self, command)

    def write(self, frame: bytes) -> None:
        if self._put_off is None:
            self.peer.write(frame)
        else:  # behind the answer to a commit
            self.peer.answers.say(frame, kept=False, channel=self.number)

    def say(self, command: base.Frame) -> None:
        self.write(write_method(self.peer.version, self.number, command))

    def answer(self, asked: Any, command: base.Frame) -> None:
        if not asked.nowait:
            self.say(command)

    def promise(self, frame: bytes, *, kept: bool) -> None:
        """``kept``: what it says is to be in the journal first."""
        answers = self.peer.promises if self._put_off is None else self.peer.answers
        answers.say(frame, kept=kept, channel=self.number)

    def wake(self) -> None:
        """Its consumers may be able to take more."""
        self.peer.engine.broker.registry.woken |= self.session.queues

    def flow(self, command: commands.Channel.Flow) -> None:
        self.flows = bool(command.active)
        for subscription in self.tags.values():
            subscription.paused = not command.active
        self.wake()
        self.say(commands.Channel.FlowOk(command.active))

    def close(self) -> None:
        """Nothing of it is left; what was not settled goes back, what was not committed is forgotten."""
        self._put_off = None
        self._take_off_tab()
        self.peer.answers.forget(self.number)
        self.peer.promises.forget(self.number)
        self.tags.clear()
        self._publisher.over()
        self.queues.close_channel(self.session, self.core, self.now())

    # -- what a transaction puts off --------------------------------------------------------------------------------

    def settle(self, tags: Sequence[int], *, multiple: bool, do: Callable[[Sequence[int]], None]) -> None:
        """Do this with deliveries, or with all up to each. Which these are is found out now, and if they can be."""
        for ids in (self._upto(tag) for tag in tags) if multiple else (tags,):
            if self._put_off is None:
                do(ids)
            else:
                self._put_on_tab(STEP_BYTES + ID_BYTES * len(ids))
                self._name(ids)
                self._put_off.append(partial(do, ids))

    def _upto(self, tag: int) -> list[int]:
        found = [known for known in self.core.upto(tag) if known not in self.named]
        if tag and tag not in found:
            raise unknown_tag(tag)
        return found

    def _name(self, ids: Sequence[int]) -> None:
        for tag in ids:
            if tag in self.named or (tag not in self.core.in_flight and tag not in self.core.taken_back):
                raise unknown_tag(tag)
            self.named.add(tag)

    def acknowledge(self, tags: Sequence[int], *, multiple: bool) -> None:
        self.settle(tags, multiple=multiple, do=self._acknowledge)

    def _acknowledge(self, ids: Sequence[int]) -> None:
        self.queues.acknowledge(self.core, ids)

    def publish(self, item: Publish) -> None:
        run = self._publisher.checked(item)
        if self._put_off is None:
            stop, work = self._publisher.publish(item, run)
            self.peer.share.left -= work - 1  # one is counted for each command
            if stop < len(run.ends):
                self.peer.share.begin(self._publish_on(item, run, stop))
        else:
            self._put_on_tab(STEP_BYTES + len(run.data) + len(item.properties))
            self._put_off.append(lambda: self._publish_all(item, run))

    def _publish_on(self, item: Publish, run: Run, start: int) -> Steps:
        """With the rest of a run, while the channel is open and nothing is in its way."""
        while start < len(run.ends) and not self.core.closed:
            if self.peer.must_wait:
                yield 0
                continue
            start, work = self._publisher.publish(item, run, start)
            yield work

    def _publish_all(self, item: Publish, run: Run) -> None:
        start = 0
        while start < len(run.ends):
            start, _ = self._publisher.publish(item, run, start)

    def _put_on_tab(self, size: int) -> None:
        """A transaction has no end of its own. Raises :class:`Refused`: then the channel ends, and it too."""
        self.session.tab.check(size)
        self.session.tab.add(TRANSACTIONS, size)
        self._put_off_bytes += size

    def _take_off_tab(self) -> None:
        self.session.tab.add(TRANSACTIONS, -self._put_off_bytes)
        self._put_off_bytes = 0

    def confirm(self, command: commands.Confirm.Select) -> None:
        if self._put_off is not None:
            raise ChannelFault(Code.PRECONDITION_FAILED, "a channel with transactions has no confirms")
        self._publisher.confirms = True
        self.answer(command, commands.Confirm.SelectOk())

    def tx_select(self, command: commands.Tx.Select) -> None:
        if self._publisher.confirms:
            raise ChannelFault(Code.PRECONDITION_FAILED, "a channel with confirms has no transactions")
        if self._put_off is None:
            self._put_off = []
        self.say(commands.Tx.SelectOk())

    def _take_put_off(self) -> list[Callable[[], None]]:
        if self._put_off is None:
            raise ChannelFault(Code.PRECONDITION_FAILED, "this channel has no transactions: there was no tx.select")
        put_off, self._put_off = self._put_off, []
        self._take_off_tab()
        self.named.clear()
        return put_off

    def tx_commit(self, command: commands.Tx.Commit) -> None:
        for step in self._take_put_off():
            step()
        done = write_method(self.peer.version, self.number, commands.Tx.CommitOk())
        self.peer.answers.say(done, kept=True, channel=self.number)

    def tx_rollback(self, command: commands.Tx.Rollback) -> None:
        self._take_put_off()
        self.say(commands.Tx.RollbackOk())


def unknown_tag(tag: int) -> ChannelFault:
    return ChannelFault(Code.PRECONDITION_FAILED, f"unknown delivery tag {tag}")


def _nothing(channel: AmqpChannel, command: base.Frame) -> None:
    """An answer that needs none."""


METHODS: dict[type, Any] = {
    **declaring.METHODS,
    **consuming.METHODS,
    commands.Channel.Flow: AmqpChannel.flow,
    commands.Channel.FlowOk: _nothing,
    commands.Basic.CancelOk: _nothing,
    commands.Confirm.Select: AmqpChannel.confirm,
    commands.Tx.Select: AmqpChannel.tx_select,
    commands.Tx.Commit: AmqpChannel.tx_commit,
    commands.Tx.Rollback: AmqpChannel.tx_rollback,
}
