"""One AMQP channel: its methods become commands to the broker, and its answers methods.

Two kinds of state are kept here and nowhere else: what a transaction has put off, and the numbers of confirms.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec
from pamqp import base, commands

from headway.core.channel import NO_LIMIT, Channel
from headway.core.errors import Reason, Refused
from headway.core.exchange import KINDS, Binding, Destination, Exchange
from headway.core.options import SubscribeRequest, parse_options
from headway.core.session import Session
from headway.core.subscription import Subscription
from headway.server.amqp.arguments import frozen, read_alternate, read_terms
from headway.server.amqp.faults import ChannelFault, connection_fault
from headway.server.amqp.publisher import REPLY_TO, Publisher
from headway.wire.amqp.codes import Code
from headway.wire.amqp.dialect import AmqpDialect
from headway.wire.amqp.envelope import AmqpEnvelope
from headway.wire.amqp.items import Publish
from headway.wire.amqp.replies import write_declare_ok, write_get_ok

if TYPE_CHECKING:
    from headway.server.amqp.peer import AmqpPeer

DIALECT = AmqpDialect()
MATCHES = {"all", "any", "all-with-x", "any-with-x"}
OWN_NAMES = "amq."
"""Queues whose names begin so are ours to name."""


class AmqpChannel:
    __slots__ = (
        "_last_queue", "_prefetch", "_publisher", "_put_off", "_session", "_tags", "closing", "core", "number", "peer",
        "reply_queue",
    )  # fmt: skip

    def __init__(self, peer: AmqpPeer, session: Session, number: int) -> None:
        self.peer = peer
        self.number = number
        self.closing = False
        """We have closed it, and the client has not said that it knows."""
        self.core = Channel(peer.listener.in_flight_max, NO_LIMIT, number, session.number)
        self.reply_queue = ""
        """Where its direct replies go."""
        self._session = session
        self._publisher = Publisher(self, session)
        self._prefetch = NO_LIMIT
        self._tags: dict[str, Subscription] = {}
        self._last_queue = ""
        self._put_off: list[Callable[[], None]] | None = None
        """What is to be done at the transaction's commit; None: there are no transactions."""

    @property
    def _broker(self) -> Any:
        return self.peer.engine.broker

    # -- methods ----------------------------------------------------------------------------------------------------

    def handle(self, command: base.Frame) -> None:
        do = _METHODS.get(type(command))
        if do is None:
            raise connection_fault(Code.COMMAND_INVALID, f"{command.name} is not expected now")
        do(self, command)

    def _say(self, command: base.Frame) -> None:
        self.peer.say(self.number, command)

    def _answer(self, asked: Any, command: base.Frame) -> None:
        if not asked.nowait:
            self._say(command)

    def close(self) -> None:
        """Nothing of it is left; what was not settled goes back, what was not committed is forgotten."""
        self._put_off = None
        self._tags.clear()
        self._broker.queues.close_channel(self._session, self.core, self.peer.engine.now())

    def _flow(self, command: commands.Channel.Flow) -> None:
        for subscription in self._tags.values():
            subscription.paused = not command.active
            self._broker.registry.woken[subscription.queue] = None
        self._say(commands.Channel.FlowOk(command.active))

    def _nothing(self, command: base.Frame) -> None:
        """An answer that needs none."""

    # -- exchanges --------------------------------------------------------------------------------------------------

    def _declare_exchange(self, command: commands.Exchange.Declare) -> None:
        name, kind = command.exchange, command.exchange_type
        if command.passive:
            self._broker.queues.exchange(name)
        elif kind not in KINDS:
            raise connection_fault(Code.COMMAND_INVALID, f"unknown exchange type '{kind}'")
        elif not name:
            raise ChannelFault(Code.ACCESS_REFUSED, "the default exchange is always there, and cannot be declared")
        else:
            self._broker.queues.declare_exchange(Exchange(
                name, kind, durable=command.durable, auto_delete=command.auto_delete, internal=command.internal,
                alternate=read_alternate(command.arguments or {}),
            ))  # fmt: skip
        self._answer(command, commands.Exchange.DeclareOk())

    def _delete_exchange(self, command: commands.Exchange.Delete) -> None:
        self._broker.queues.delete_exchange(command.exchange, if_unused=command.if_unused)
        self._answer(command, commands.Exchange.DeleteOk())

    def _bind_exchange(self, command: commands.Exchange.Bind) -> None:
        binding = self._exchange_binding(command)
        self._check(binding)
        self._broker.queues.bind(self._session, binding)
        self._answer(command, commands.Exchange.BindOk())

    def _unbind_exchange(self, command: commands.Exchange.Unbind) -> None:
        self._broker.queues.unbind(self._session, self._exchange_binding(command))
        self._answer(command, commands.Exchange.UnbindOk())

    def _exchange_binding(self, command: commands.Exchange.Bind | commands.Exchange.Unbind) -> Binding:
        to = Destination("exchange", command.destination)
        return Binding(command.source, to, command.routing_key, frozen(command.arguments or {}))

    # -- queues -----------------------------------------------------------------------------------------------------

    def _declare_queue(self, command: commands.Queue.Declare) -> None:
        queues, now = self._broker.queues, self.peer.engine.now()
        name = command.queue
        if name == REPLY_TO or (name.startswith(REPLY_TO + ".") and name in self._broker.registry.router.queues):
            if not command.nowait:  # that is how one asks whether whoever wants a reply is still there
                self.peer.write(write_declare_ok(self.peer.version, self.number, name, 0, 1))
            return
        if command.passive:
            queue = queues.queue(self._session, name or self._last_queue)
            queue.used_s = now
        else:
            known = name in self._broker.registry.router.queues
            if name.startswith(OWN_NAMES) and not known:
                raise ChannelFault(Code.ACCESS_REFUSED, f"queue names that begin with '{OWN_NAMES}' are the broker's")
            terms = read_terms(
                command.arguments or {}, durable=command.durable, exclusive=command.exclusive,
                auto_delete=command.auto_delete,
            )  # fmt: skip
            queue = queues.declare(self._session, name or f"amq.gen-{secrets.token_urlsafe(16)}", terms, DIALECT, now)
        self._last_queue = queue.name
        if not command.nowait:
            self.peer.write(write_declare_ok(
                self.peer.version, self.number, queue.name, queue.lag_records, len(queue.consumers)
            ))  # fmt: skip

    def _queue_name(self, name: str) -> str:
        """Without a name the last one declared on this channel is meant."""
        if not name and not self._last_queue:
            raise ChannelFault(Code.NOT_FOUND, "no queue was declared on this channel that could be meant")
        return name or self._last_queue

    def _bind_queue(self, command: commands.Queue.Bind) -> None:
        binding = self._queue_binding(command)
        self._check(binding)
        self._broker.queues.bind(self._session, binding)
        self._answer(command, commands.Queue.BindOk())

    def _unbind_queue(self, command: commands.Queue.Unbind) -> None:
        self._broker.queues.unbind(self._session, self._queue_binding(command))
        self._say(commands.Queue.UnbindOk())

    def _queue_binding(self, command: commands.Queue.Bind | commands.Queue.Unbind) -> Binding:
        name = self._queue_name(command.queue)
        key = name if not command.queue and not command.routing_key else command.routing_key
        return Binding(command.exchange, Destination("queue", name), key, frozen(command.arguments or {}))

    def _check(self, binding: Binding) -> None:
        """A headers exchange knows four ways to match."""
        source = self._broker.queues.exchange(binding.source)
        match = dict(binding.arguments).get("x-match", "all")
        if source.kind == "headers" and match not in MATCHES:
            text = f"invalid x-match {match!r}: one of {', '.join(sorted(MATCHES))}"
            raise ChannelFault(Code.PRECONDITION_FAILED, text)

    def _purge_queue(self, command: commands.Queue.Purge) -> None:
        queue = self._broker.queues.queue(self._session, self._queue_name(command.queue))
        self._answer(command, commands.Queue.PurgeOk(queue.purge()))

    def _delete_queue(self, command: commands.Queue.Delete) -> None:
        queues, name, waiting = self._broker.queues, self._queue_name(command.queue), 0
        if name in self._broker.registry.router.queues:  # gone already is what was wanted
            queue = queues.queue(self._session, name)
            waiting = queues.delete(
                queue, self.peer.engine.now(), if_unused=command.if_unused, if_empty=command.if_empty
            )  # fmt: skip
        self._answer(command, commands.Queue.DeleteOk(waiting))

    # -- consumers --------------------------------------------------------------------------------------------------

    def _qos(self, command: commands.Basic.Qos) -> None:
        if command.prefetch_size:
            raise connection_fault(Code.NOT_IMPLEMENTED, "a prefetch in bytes")
        if command.global_:
            self.core.limit = min(command.prefetch_count or NO_LIMIT, self.peer.listener.in_flight_max)
            self._broker.registry.woken |= self._session.queues
        else:
            self._prefetch = command.prefetch_count or NO_LIMIT
        self._say(commands.Basic.QosOk())

    def _consume(self, command: commands.Basic.Consume) -> None:
        queues, now = self._broker.queues, self.peer.engine.now()
        tag = command.consumer_tag or self._fresh_tag()
        if tag in self._tags:
            raise connection_fault(Code.NOT_ALLOWED, f"consumer tag '{tag}' is in use on this channel")
        name = self._queue_name(command.queue)
        if name == REPLY_TO:
            name = self._reply_queue(no_ack=command.no_ack)
        queue = queues.queue(self._session, name)
        request = SubscribeRequest(
            f"$queue/{name}", DIALECT, qos=0 if command.no_ack else 1, name=(self.number, tag),
            envelope=AmqpEnvelope(self.number, tag, self.peer.frame_bytes_max), options=_options(command.arguments),
        )  # fmt: skip
        prefetch = NO_LIMIT if command.no_ack else self._prefetch
        self._tags[tag] = queues.consume(
            self._session, self.core, queue, request, prefetch, now, exclusive=command.exclusive
        )  # fmt: skip
        self._answer(command, commands.Basic.ConsumeOk(tag))

    def _fresh_tag(self) -> str:
        """Tags are the channel's own; clients that are served alike share the bytes of their deliveries."""
        return next(tag for number in count(1) if (tag := f"amq.ctag-{number}") not in self._tags)

    def _reply_queue(self, *, no_ack: bool) -> str:
        """A queue of this channel's alone, for replies to what it publishes."""
        if not no_ack:
            raise ChannelFault(Code.PRECONDITION_FAILED, "replies cannot be acknowledged: consume them with no_ack")
        if self.reply_queue:
            raise ChannelFault(Code.PRECONDITION_FAILED, "this channel has a consumer of replies already")
        self.reply_queue = f"{REPLY_TO}.{secrets.token_urlsafe(16)}"
        terms = read_terms({}, durable=False, exclusive=True, auto_delete=True)
        self._broker.queues.declare(self._session, self.reply_queue, terms, DIALECT, self.peer.engine.now())
        return self.reply_queue

    def _cancel(self, command: commands.Basic.Cancel) -> None:
        subscription = self._tags.pop(command.consumer_tag or "", None)
        if subscription is not None:
            self._forget_replies(subscription)
            self._broker.queues.cancel(subscription, self.peer.engine.now())
        self._answer(command, commands.Basic.CancelOk(command.consumer_tag))

    def _forget_replies(self, subscription: Subscription) -> None:
        if subscription.queue is not None and subscription.queue.name == self.reply_queue:
            self.reply_queue = ""

    def cancel_by_server(self, subscription: Subscription) -> None:
        self._broker.queues.cancel(subscription, self.peer.engine.now())
        self.cancelled(subscription)

    def cancelled(self, subscription: Subscription) -> None:
        """It gets nothing any more; a client that understands is told."""
        tag = next((tag for tag, known in self._tags.items() if known is subscription), None)
        if tag is not None:
            del self._tags[tag]
            if self.peer.cancels:
                self._say(commands.Basic.Cancel(tag, nowait=True))

    def _get(self, command: commands.Basic.Get) -> None:
        queues, name = self._broker.queues, self._queue_name(command.queue)
        queue = queues.queue(self._session, name)
        request = SubscribeRequest(
            f"$queue/{name}", DIALECT, qos=0 if command.no_ack else 1, polling=True,
            name=(self.number, name, command.no_ack),
        )  # fmt: skip
        try:
            got = queues.get(self._session, self.core, queue, request, NO_LIMIT, self.peer.engine.now())
        except OSError as error:
            raise connection_fault(Code.INTERNAL_ERROR, f"the disk failed: {error.strerror or error}") from error
        if got is None:
            self._say(commands.Basic.GetEmpty())
            return
        self.peer.write(write_get_ok(
            self.number, got.delivery_id, got.frame, got.records_left, self.peer.frame_bytes_max,
            redelivered=got.redelivered,
        ))  # fmt: skip

    # -- settling ---------------------------------------------------------------------------------------------------

    def acknowledge(self, tags: Sequence[int], *, multiple: bool) -> None:
        if self._put_off is not None:
            self._put_off.append(lambda: self._settle(tags, multiple=multiple))
        else:
            self._settle(tags, multiple=multiple)

    def _settle(self, tags: Sequence[int], *, multiple: bool) -> None:
        queues = self._broker.queues
        if not multiple:
            queues.acknowledge(self.core, tags)
            return
        for tag in tags:
            queues.acknowledge(self.core, self._upto(tag))

    def _upto(self, tag: int) -> list[int]:
        found = self.core.upto(tag)
        if tag and tag not in found:
            raise ChannelFault(Code.PRECONDITION_FAILED, f"unknown delivery tag {tag}")
        return found

    def _nack(self, command: commands.Basic.Nack) -> None:
        self._refuse(command.delivery_tag, multiple=command.multiple, requeue=command.requeue)

    def _reject(self, command: commands.Basic.Reject) -> None:
        self._refuse(command.delivery_tag or 0, multiple=False, requeue=command.requeue)

    def _refuse(self, tag: int, *, multiple: bool, requeue: bool) -> None:
        def refuse() -> None:
            self._broker.queues.refuse(self.core, self._upto(tag) if multiple else [tag], requeue=requeue)

        if self._put_off is not None:
            self._put_off.append(refuse)
        else:
            refuse()

    def _recover(self, command: commands.Basic.Recover) -> None:
        self._give_all_back(command.requeue)
        self._say(commands.Basic.RecoverOk())

    def _recover_async(self, command: commands.Basic.RecoverAsync) -> None:
        self._give_all_back(command.requeue)

    def _give_all_back(self, requeue: bool) -> None:
        if not requeue:
            raise connection_fault(Code.NOT_IMPLEMENTED, "to recover without requeue")
        self._broker.queues.recover(self.core)

    # -- publishing -------------------------------------------------------------------------------------------------

    def publish(self, item: Publish) -> None:
        run = self._publisher.checked(item)
        if self._put_off is not None:
            self._put_off.append(lambda: self._publisher.publish(item, run))
        else:
            self._publisher.publish(item, run)

    def _confirm(self, command: commands.Confirm.Select) -> None:
        if self._put_off is not None:
            raise ChannelFault(Code.PRECONDITION_FAILED, "a channel with transactions has no confirms")
        self._publisher.confirm()
        self._answer(command, commands.Confirm.SelectOk())

    # -- transactions -----------------------------------------------------------------------------------------------

    def _tx_select(self, command: commands.Tx.Select) -> None:
        if self._publisher.confirms:
            raise ChannelFault(Code.PRECONDITION_FAILED, "a channel with confirms has no transactions")
        if self._put_off is None:
            self._put_off = []
        self._say(commands.Tx.SelectOk())

    def _take_put_off(self) -> list[Callable[[], None]]:
        if self._put_off is None:
            raise ChannelFault(Code.PRECONDITION_FAILED, "this channel has no transactions: there was no tx.select")
        put_off, self._put_off = self._put_off, []
        return put_off

    def _tx_commit(self, command: commands.Tx.Commit) -> None:
        for do in self._take_put_off():
            do()
        self._say(commands.Tx.CommitOk())

    def _tx_rollback(self, command: commands.Tx.Rollback) -> None:
        self._take_put_off()
        self._say(commands.Tx.RollbackOk())


def _options(arguments: dict[str, Any] | None) -> Any:
    """What a consumer may ask for besides: a policy. All else is about topics, not queues."""
    pairs = [(name, value) for name, value in (arguments or {}).items() if isinstance(value, str)]
    options = parse_options(pairs)
    asked = [name for name, _ in pairs if name in ("conflate", "snapshot", "from", "selector", "lease", "offsets")]
    if asked:
        raise Refused(Reason.PRECONDITION_FAILED, f"{asked[0]} is for subscriptions to topics, not for queues")
    return msgspec.structs.replace(options, key=None)


_METHODS: dict[type[base.Frame], Any] = {
    commands.Channel.Flow: AmqpChannel._flow,
    commands.Channel.FlowOk: AmqpChannel._nothing,
    commands.Exchange.Declare: AmqpChannel._declare_exchange,
    commands.Exchange.Delete: AmqpChannel._delete_exchange,
    commands.Exchange.Bind: AmqpChannel._bind_exchange,
    commands.Exchange.Unbind: AmqpChannel._unbind_exchange,
    commands.Queue.Declare: AmqpChannel._declare_queue,
    commands.Queue.Bind: AmqpChannel._bind_queue,
    commands.Queue.Unbind: AmqpChannel._unbind_queue,
    commands.Queue.Purge: AmqpChannel._purge_queue,
    commands.Queue.Delete: AmqpChannel._delete_queue,
    commands.Basic.Qos: AmqpChannel._qos,
    commands.Basic.Consume: AmqpChannel._consume,
    commands.Basic.Cancel: AmqpChannel._cancel,
    commands.Basic.CancelOk: AmqpChannel._nothing,
    commands.Basic.Get: AmqpChannel._get,
    commands.Basic.Nack: AmqpChannel._nack,
    commands.Basic.Reject: AmqpChannel._reject,
    commands.Basic.Recover: AmqpChannel._recover,
    commands.Basic.RecoverAsync: AmqpChannel._recover_async,
    commands.Confirm.Select: AmqpChannel._confirm,
    commands.Tx.Select: AmqpChannel._tx_select,
    commands.Tx.Commit: AmqpChannel._tx_commit,
    commands.Tx.Rollback: AmqpChannel._tx_rollback,
}
