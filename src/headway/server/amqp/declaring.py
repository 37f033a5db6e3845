"""Exchanges and queues: what a client declares, binds, purges and deletes on a channel."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from pamqp import commands

from headway.core.exchange import KINDS, Binding, Destination, Exchange
from headway.core.options import NO_OPTIONS, SubscriptionOptions, parse_options
from headway.server.amqp.arguments import MATCHES, frozen, read_alternate, read_terms
from headway.server.amqp.faults import ChannelFault, connection_fault
from headway.server.amqp.publisher import REPLY_TO
from headway.wire.amqp.codes import Code
from headway.wire.amqp.dialect import AmqpDialect
from headway.wire.amqp.replies import write_declare_ok

if TYPE_CHECKING:
    from headway.server.amqp.channel import AmqpChannel

DIALECT = AmqpDialect()
OWN_NAMES = "amq."
"""Queues whose names begin so are ours to name."""


# -- exchanges ---------------------------------------------------------------------------------------------------------


def declare_exchange(channel: AmqpChannel, command: commands.Exchange.Declare) -> None:
    name, kind = command.exchange, command.exchange_type
    if command.passive:
        channel.queues.exchange(name)
    elif kind not in KINDS:
        raise connection_fault(Code.COMMAND_INVALID, f"unknown exchange type '{kind}'")
    elif not name:
        raise ChannelFault(Code.ACCESS_REFUSED, "the default exchange is always there, and cannot be declared")
    else:
        channel.queues.declare_exchange(Exchange(
            name, kind, durable=command.durable, auto_delete=command.auto_delete, internal=command.internal,
            alternate=read_alternate(command.arguments or {}),
        ))  # fmt: skip
    channel.answer(command, commands.Exchange.DeclareOk())


def delete_exchange(channel: AmqpChannel, command: commands.Exchange.Delete) -> None:
    channel.queues.delete_exchange(command.exchange, if_unused=command.if_unused)
    channel.answer(command, commands.Exchange.DeleteOk())


def bind_exchange(channel: AmqpChannel, command: commands.Exchange.Bind) -> None:
    _bind(channel, _exchange_binding(command))
    channel.answer(command, commands.Exchange.BindOk())


def unbind_exchange(channel: AmqpChannel, command: commands.Exchange.Unbind) -> None:
    channel.queues.unbind(channel.session, _exchange_binding(command))
    channel.answer(command, commands.Exchange.UnbindOk())


def _exchange_binding(command: commands.Exchange.Bind | commands.Exchange.Unbind) -> Binding:
    to = Destination("exchange", command.destination)
    return Binding(command.source, to, command.routing_key, frozen(command.arguments or {}))


def _bind(channel: AmqpChannel, binding: Binding, options: SubscriptionOptions = NO_OPTIONS) -> None:
    match = dict(binding.arguments).get("x-match", "all")
    if channel.queues.exchange(binding.source).kind == "headers" and match not in MATCHES:
        text = f"invalid x-match {match!r}: one of {', '.join(sorted(MATCHES))}"
        raise ChannelFault(Code.PRECONDITION_FAILED, text)
    channel.queues.bind(channel.session, binding, channel.now(), options=options)


# -- queues ------------------------------------------------------------------------------------------------------------


def declare_queue(channel: AmqpChannel, command: commands.Queue.Declare) -> None:
    queues, now, name = channel.queues, channel.now(), command.queue
    if name == REPLY_TO or (name.startswith(REPLY_TO + ".") and channel.knows(name)):
        if not command.nowait:  # that is how one asks whether whoever wants a reply is still there
            channel.peer.write(write_declare_ok(channel.peer.version, channel.number, name, 0, 1))
        return
    if command.passive:
        queue = queues.queue(channel.session, queue_name(channel, name))
        queue.used_s = now
    else:
        if name.startswith(OWN_NAMES) and not channel.knows(name):
            raise ChannelFault(Code.ACCESS_REFUSED, f"queue names that begin with '{OWN_NAMES}' are the broker's")
        terms = read_terms(
            command.arguments or {}, durable=command.durable, exclusive=command.exclusive,
            auto_delete=command.auto_delete,
        )  # fmt: skip
        queue = queues.declare(channel.session, name or f"amq.gen-{secrets.token_urlsafe(16)}", terms, DIALECT, now)
    channel.last_queue = queue.name
    if not command.nowait:
        channel.peer.write(write_declare_ok(
            channel.peer.version, channel.number, queue.name, queue.backlog.lag_records, len(queue.consumers)
        ))  # fmt: skip


def queue_name(channel: AmqpChannel, name: str) -> str:
    """Without a name the last one declared on this channel is meant."""
    if not name and not channel.last_queue:
        raise ChannelFault(Code.NOT_FOUND, "no queue was declared on this channel that could be meant")
    return name or channel.last_queue


def bind_queue(channel: AmqpChannel, command: commands.Queue.Bind) -> None:
    arguments = dict(command.arguments or {})
    start = arguments.pop("from", None)
    options = parse_options([("from", str(start))]) if start is not None else NO_OPTIONS
    _bind(channel, _queue_binding(channel, command, arguments), options)
    channel.answer(command, commands.Queue.BindOk())


def unbind_queue(channel: AmqpChannel, command: commands.Queue.Unbind) -> None:
    arguments = {name: value for name, value in (command.arguments or {}).items() if name != "from"}
    channel.queues.unbind(channel.session, _queue_binding(channel, command, arguments))
    channel.say(commands.Queue.UnbindOk())


def _queue_binding(
    channel: AmqpChannel, command: commands.Queue.Bind | commands.Queue.Unbind, arguments: dict[str, Any]
) -> Binding:
    name = queue_name(channel, command.queue)
    key = name if not command.queue and not command.routing_key else command.routing_key
    return Binding(command.exchange, Destination("queue", name), key, frozen(arguments))


def purge_queue(channel: AmqpChannel, command: commands.Queue.Purge) -> None:
    queue = channel.queues.queue(channel.session, queue_name(channel, command.queue))
    channel.answer(command, commands.Queue.PurgeOk(queue.drops.purge()))


def delete_queue(channel: AmqpChannel, command: commands.Queue.Delete) -> None:
    name, waiting = queue_name(channel, command.queue), 0
    if channel.knows(name):  # gone already is what was wanted
        queue = channel.queues.queue(channel.session, name)
        waiting = channel.queues.delete(queue, channel.now(), if_unused=command.if_unused, if_empty=command.if_empty)
    channel.answer(command, commands.Queue.DeleteOk(waiting))


METHODS: dict[type, Any] = {
    commands.Exchange.Declare: declare_exchange,
    commands.Exchange.Delete: delete_exchange,
    commands.Exchange.Bind: bind_exchange,
    commands.Exchange.Unbind: unbind_exchange,
    commands.Queue.Declare: declare_queue,
    commands.Queue.Bind: bind_queue,
    commands.Queue.Unbind: unbind_queue,
    commands.Queue.Purge: purge_queue,
    commands.Queue.Delete: delete_queue,
}
