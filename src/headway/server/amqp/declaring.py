"""Exchanges and queues: declaring, binding, purging and deleting them on a channel.

A reply about something durable is sent once the journal has that (``HoldingReplies``).
"""

from __future__ import annotations

import secrets
from typing import Any

from pamqp import base, commands

from headway.core.base import Reason, Refused
from headway.core.clients import check_binding, check_exchange, check_known_exchange, check_queue, is_own, queue_object
from headway.core.consumer import (
    NO_OPTIONS,
    PREFIX,
    QueueTerms,
    SubscribeRequest,
    Subscription,
    SubscriptionOptions,
    parse_options,
)
from headway.core.message import TOPICS, topic_of
from headway.core.permission import ALL_RIGHTS, EXCHANGES, Operation
from headway.core.queue import Queue
from headway.core.routing import KINDS, PREDECLARED, Binding, Destination, Exchange, frozen
from headway.server.amqp.channel import AmqpChannel
from headway.server.amqp.ports import ChannelFault, connection_fault
from headway.server.amqp.publisher import REPLY_TO
from headway.server.connections import SUBSCRIBE_WORK, Steps
from headway.server.peers import MATCHES, read_alternate, read_terms
from headway.wire.amqp.codes import ReplyCode
from headway.wire.amqp.dialect import AmqpDialect
from headway.wire.amqp.envelope import AmqpEnvelope
from headway.wire.amqp.replies import write_declare_ok, write_method

# -- permissions -------------------------------------------------------------------------------------------------------
#
# Permissions of AMQP's commands. Without permissions in the config each of these does nothing.
#
# They are those of RabbitMQ: declaring and deleting need ``declare`` (its *configure*), consuming, getting and purging
# need ``subscribe`` (its *read*), publishing needs ``publish`` (its *write*), and a binding reads its source and writes
# to its destination. A denial raises :class:`Refused`, which closes the channel with 403.


_PREDECLARED = {name for name, _ in PREDECLARED}


def check_read(channel: AmqpChannel, queue: str) -> None:
    """Checks that the client may read a queue."""
    if not _owns(channel, queue):
        channel.session.rights.check(Operation.SUBSCRIBE, queue_object(queue))


def check_queue_declaration(channel: AmqpChannel, name: str, *, exclusive: bool) -> None:
    """Checks that the client may declare a queue, before its arguments are read. ``name`` is empty if the broker is to
    give it one."""
    if not (exclusive and (not name or _owns(channel, name))):
        channel.session.rights.check(Operation.DECLARE, queue_object(name))


def check_dead_letters(channel: AmqpChannel, name: str, terms: QueueTerms) -> None:
    """Checks that the client may write to the dead letter exchange of a queue that it may declare."""
    own = terms.exclusive and (not name or _owns(channel, name))
    check_queue(channel.session.rights, name, terms, own=own)


def check_queue_deletion(channel: AmqpChannel, name: str) -> None:
    if not _owns(channel, name):
        channel.session.rights.check(Operation.DECLARE, queue_object(name))


def check_exchange_declaration(channel: AmqpChannel, name: str) -> None:
    """Checks that the client may declare an exchange, before its arguments are read. To declare one that is always
    there changes nothing."""
    if name not in _PREDECLARED:
        channel.session.rights.check(Operation.DECLARE, EXCHANGES + name.replace("/", "%2F"))


def check_alternate(channel: AmqpChannel, exchange: Exchange) -> None:
    """Checks that the client may write to the alternate exchange of an exchange that it may declare."""
    if exchange.name not in _PREDECLARED:
        check_exchange(channel.session.rights, exchange)


def check_exchange_deletion(channel: AmqpChannel, name: str) -> None:
    channel.session.rights.check(Operation.DECLARE, EXCHANGES + name.replace("/", "%2F"))


def check_bind(channel: AmqpChannel, binding: Binding) -> None:
    """Checks that the client may make, or end, a binding."""
    if channel.session.rights is not ALL_RIGHTS:  # else the exchange need not be there
        check_known_exchange(channel.session.rights, binding.source)
        own = binding.destination.kind == "queue" and _owns(channel, binding.destination.name)
        check_binding(channel.session.rights, binding, channel.queues.exchange(binding.source), own=own)


def _owns(channel: AmqpChannel, name: str) -> bool:
    """Returns whether a queue is the client's own. Whether another has it for itself alone is found out later."""
    queue = channel.peer.engine.broker.registry.router.queues.get(name)
    return queue is not None and queue.owner is channel.session and is_own(name, queue.terms)


# -- topics ------------------------------------------------------------------------------------------------------------
#
# Consumers of topics: ``basic.consume`` of ``amq.topic`` itself, where the name of a queue stands otherwise.
#
# The argument ``x-headway-topics`` is a binding key: the topics that it matches are read; without it, all. A queue
# hands each record to one consumer, in turn. A consumer of topics reads them for itself, as an MQTT subscriber does, so
# it can be conflated, begin with the state, and select records. It acknowledges nothing. There is no queue, and nothing
# is declared. To consume again under the same tag, on the same terms, renews the lease.


KEY = f"{PREFIX}topics"
"""The argument with the binding key."""


def filter_of(key: object) -> str:
    """Returns the filter of a binding key. Raises :class:`Refused`."""
    if not isinstance(key, str):
        raise Refused(Reason.PROTOCOL_ERROR, f"{KEY} takes a text, a binding key such as flights.*.late")
    words = key.split(".")
    if key.startswith("$") and words[0] != "$SYS":
        raise Refused(Reason.PROTOCOL_ERROR, f"{KEY}={key!r}: there are no topics whose names begin with {words[0]}")
    for number, word in enumerate(words, 1):
        if word == "#" and number < len(words):
            raise Refused(Reason.PROTOCOL_ERROR, f"{KEY}={key!r}: '#' stands at the end of the key")
        if word not in ("#", "*") and any(wildcard in word for wildcard in "#*+"):
            text = f"{KEY}={key!r}: a binding key has a dot between its words, as in flights.*.late"
            raise Refused(Reason.PROTOCOL_ERROR, text)
    return "/".join("+" if word == "*" else topic_of(word) for word in words)


def consume_topics(
    channel: AmqpChannel, command: commands.Basic.Consume, tag: str, key: object, options: SubscriptionOptions
) -> Subscription:
    """Begins or renews a consumer of topics. Raises :class:`ChannelFault`, :class:`Refused`."""
    if not command.no_ack:
        raise ChannelFault("a consumer of topics acknowledges nothing: consume with no_ack (auto_ack=True)")
    if command.exclusive:
        raise ChannelFault("a consumer of topics cannot be exclusive: each reads the topics for itself")
    request = SubscribeRequest(
        filter_of(key), AmqpDialect(topics=True, offsets=options.offsets), send_retained="never", options=options,
        name=(channel.number, tag), envelope=AmqpEnvelope(channel.number, tag, channel.peer.frame_bytes_max),
    )  # fmt: skip
    return channel.queues.consume_topics(channel.session, channel.core, request, channel.now())


# -- declaring ---------------------------------------------------------------------------------------------------------


DIALECT = AmqpDialect()
OWN_NAMES = "amq."
"""Prefix of queue names that only the broker may give."""
MEMBERS_PER_WORK = 6
"""How many of a queue's consumers are counted in the time of one unit of work."""


# -- exchanges ---------------------------------------------------------------------------------------------------------


def declare_exchange(channel: AmqpChannel, command: commands.Exchange.Declare) -> None:
    name, kind = command.exchange, command.exchange_type
    if command.passive:
        check_known_exchange(channel.session.rights, name)
        channel.queues.exchange(name)
    elif kind not in KINDS:
        raise connection_fault(ReplyCode.COMMAND_INVALID, f"unknown exchange type '{kind}'")
    elif not name:
        raise ChannelFault("the default exchange is always there, and cannot be declared", ReplyCode.ACCESS_REFUSED)
    else:
        check_exchange_declaration(channel, name)
        exchange = Exchange(
            name, kind, durable=command.durable, auto_delete=command.auto_delete, internal=command.internal,
            alternate=read_alternate(command.arguments or {}),
        )  # fmt: skip
        check_alternate(channel, exchange)
        try:
            channel.queues.declare_exchange(exchange)
        finally:  # a refusal may be the most work
            channel.peer.budget.left -= channel.queues.take_looked()
    _answer(channel, command, commands.Exchange.DeclareOk(), kept=command.durable and not command.passive)


def delete_exchange(channel: AmqpChannel, command: commands.Exchange.Delete) -> None:
    check_exchange_deletion(channel, command.exchange)
    channel.peer.budget.begin(_end_exchange(channel, command))


def _end_exchange(channel: AmqpChannel, command: commands.Exchange.Delete) -> Steps:
    durable = channel.queues.is_durable(command.exchange)
    yield from channel.queues.delete_exchange(command.exchange, if_unused=command.if_unused)
    if not channel.gone:
        _answer(channel, command, commands.Exchange.DeleteOk(), kept=durable)


def bind_exchange(channel: AmqpChannel, command: commands.Exchange.Bind) -> None:
    kept = _bind(channel, _exchange_binding(command))
    _answer(channel, command, commands.Exchange.BindOk(), kept=kept)


def unbind_exchange(channel: AmqpChannel, command: commands.Exchange.Unbind) -> None:
    kept = _unbind(channel, _exchange_binding(command))
    _answer(channel, command, commands.Exchange.UnbindOk(), kept=kept)


def _answer(channel: AmqpChannel, asked: Any, answer: base.Frame, *, kept: bool) -> None:
    if not asked.nowait:
        channel.send_when_kept(write_method(channel.peer.version, channel.number, answer), kept=kept)


def _exchange_binding(command: commands.Exchange.Bind | commands.Exchange.Unbind) -> Binding:
    to = Destination("exchange", command.destination)
    return Binding(command.source, to, command.routing_key, frozen(command.arguments or {}))


def _bind(channel: AmqpChannel, binding: Binding, options: SubscriptionOptions = NO_OPTIONS) -> bool:
    """Binds, and returns whether the binding is durable. Raises :class:`ChannelFault`, :class:`Refused`."""
    check_bind(channel, binding)
    match = dict(binding.arguments).get("x-match", "all")
    if channel.queues.exchange(binding.source).kind == "headers" and match not in MATCHES:
        raise ChannelFault(f"invalid x-match {match!r}: one of {', '.join(sorted(MATCHES))}")
    try:
        channel.peer.budget.left -= channel.queues.bind(channel.session, binding, channel.now(), options=options)
    finally:  # a refusal may be the most work
        channel.peer.budget.left -= channel.queues.take_looked()
    return channel.queues.outlives(binding)


def _unbind(channel: AmqpChannel, binding: Binding) -> bool:
    """Unbinds, and returns whether the binding was durable."""
    check_bind(channel, binding)
    kept = channel.queues.outlives(binding)
    channel.peer.budget.left -= channel.queues.unbind(channel.session, binding)
    return kept


# -- queues ------------------------------------------------------------------------------------------------------------


def declare_queue(channel: AmqpChannel, command: commands.Queue.Declare) -> None:
    queues, now, name = channel.queues, channel.now(), command.queue
    if name == REPLY_TO or (name.startswith(REPLY_TO + ".") and channel.knows(name)):
        if not command.nowait:  # clients ask this way whether the requester is still there
            channel.send_when_kept(write_declare_ok(channel.peer.version, channel.number, name, 0, 1), kept=False)
        return
    if name == TOPICS and command.passive:  # consumers of topics may ask first
        _answer(channel, command, commands.Queue.DeclareOk(name, 0, 0), kept=False)
        return
    if command.passive:
        queue = queues.queue(channel.session, queue_name(channel, name))
        queue.used_s = now
    else:
        if name.startswith(OWN_NAMES) and not channel.knows(name):
            raise ChannelFault(f"queue names that begin with '{OWN_NAMES}' are the broker's", ReplyCode.ACCESS_REFUSED)
        check_queue_declaration(channel, name, exclusive=command.exclusive)
        terms = read_terms(
            command.arguments or {}, durable=command.durable, exclusive=command.exclusive,
            auto_delete=command.auto_delete,
        )  # fmt: skip
        check_dead_letters(channel, name, terms)
        if not channel.knows(name):
            channel.peer.budget.left -= SUBSCRIBE_WORK
        queue = queues.declare(channel.session, name or f"amq.gen-{secrets.token_urlsafe(16)}", terms, DIALECT, now)
    channel.last_queue = queue.name
    if not command.nowait:
        channel.peer.budget.left -= len(queue.members) // MEMBERS_PER_WORK
        queue.feed.lane.receive()
        answer = write_declare_ok(
            channel.peer.version, channel.number, queue.name, queue.backlog.lag_records, len(queue.members.consumers)
        )  # fmt: skip
        channel.send_when_kept(answer, kept=queue.durable_position.durable and not command.passive)


def queue_name(channel: AmqpChannel, name: str) -> str:
    """Returns the queue that is meant: without a name, the one declared last on this channel."""
    if not name and not channel.last_queue:
        raise ChannelFault("no queue was declared on this channel that could be meant", ReplyCode.NOT_FOUND)
    return name or channel.last_queue


def bind_queue(channel: AmqpChannel, command: commands.Queue.Bind) -> None:
    arguments = dict(command.arguments or {})
    start = arguments.pop("from", None)
    binding = _queue_binding(channel, command, arguments)
    check_bind(channel, binding)
    options = parse_options([("from", str(start))]) if start is not None else NO_OPTIONS
    kept = _bind(channel, binding, options)
    _answer(channel, command, commands.Queue.BindOk(), kept=kept)


def unbind_queue(channel: AmqpChannel, command: commands.Queue.Unbind) -> None:
    arguments = {name: value for name, value in (command.arguments or {}).items() if name != "from"}
    kept = _unbind(channel, _queue_binding(channel, command, arguments))
    channel.send_when_kept(write_method(channel.peer.version, channel.number, commands.Queue.UnbindOk()), kept=kept)


def _queue_binding(
    channel: AmqpChannel, command: commands.Queue.Bind | commands.Queue.Unbind, arguments: dict[str, Any]
) -> Binding:
    name = queue_name(channel, command.queue)
    key = name if not command.queue and not command.routing_key else command.routing_key
    return Binding(command.exchange, Destination("queue", name), key, frozen(arguments))


def purge_queue(channel: AmqpChannel, command: commands.Queue.Purge) -> None:
    queue = channel.queues.queue(channel.session, queue_name(channel, command.queue))
    check_read(channel, queue.name)
    channel.peer.budget.begin(_purge(channel, command, queue))


def _purge(channel: AmqpChannel, command: commands.Queue.Purge, queue: Queue) -> Steps:
    kept = queue.durable_position.durable
    purged = yield from queue.purge()
    if not channel.gone:
        _answer(channel, command, commands.Queue.PurgeOk(purged), kept=kept)


def delete_queue(channel: AmqpChannel, command: commands.Queue.Delete) -> None:
    name, waiting, kept = queue_name(channel, command.queue), 0, True
    check_queue_deletion(channel, name)
    if channel.knows(name):  # deleting a queue that is gone succeeds
        channel.peer.budget.left -= SUBSCRIBE_WORK
        queue = channel.queues.queue(channel.session, name)
        kept = queue.durable_position.durable
        waiting = channel.queues.delete(
            queue, channel.now(), if_unused=command.if_unused, if_empty=command.if_empty, by=channel.session
        )
    _answer(channel, command, commands.Queue.DeleteOk(waiting), kept=kept)


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
