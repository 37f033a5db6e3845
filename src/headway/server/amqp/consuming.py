"""Consumers of a channel: consuming, polling (basic.get), and settling of deliveries."""

from __future__ import annotations

import secrets
from functools import partial
from typing import Any

from pamqp import commands

from headway.core.consumer import (
    NO_LIMIT,
    PREFIX,
    SubscribeRequest,
    Subscription,
    SubscriptionOptions,
    Use,
    parse_options,
)
from headway.core.message import TOPICS
from headway.core.queue import Queue
from headway.core.selector import compile_work
from headway.server.amqp.channel import AmqpChannel
from headway.server.amqp.declaring import DIALECT, KEY, check_read, consume_topics, filter_of, queue_name
from headway.server.amqp.ports import ChannelFault, connection_fault
from headway.server.amqp.publisher import REPLY_TO
from headway.server.connections import SUBSCRIBE_WORK, Steps
from headway.server.peers import log_patience, read_terms
from headway.wire.amqp.codes import ReplyCode
from headway.wire.amqp.envelope import AmqpEnvelope
from headway.wire.amqp.replies import write_get_ok

# -- consuming ---------------------------------------------------------------------------------------------------------


def qos(channel: AmqpChannel, command: commands.Basic.Qos) -> None:
    if command.prefetch_size:
        raise connection_fault(ReplyCode.NOT_IMPLEMENTED, "a prefetch in bytes")
    if command.global_:
        channel.core.limit = command.prefetch_count or NO_LIMIT
        channel.wake()
    else:
        channel.prefetch = command.prefetch_count or NO_LIMIT
    channel.say(commands.Basic.QosOk())


def consume(channel: AmqpChannel, command: commands.Basic.Consume) -> None:
    tag = command.consumer_tag or _fresh_tag(channel)
    if command.queue == TOPICS:
        arguments = dict(command.arguments or {})
        key = arguments.pop(KEY, "#")
        channel.peer.engine.broker.check_subscribe(channel.session, filter_of(key))
        subscription = consume_topics(channel, command, tag, key, _options(channel, arguments, Use.SUBSCRIPTION))
    else:
        subscription = _consume_queue(channel, command, tag)
    channel.keep(tag, subscription)
    channel.peer.budget.left -= SUBSCRIBE_WORK
    subscription.let_flow(channel.flows)
    log_patience(subscription)
    channel.answer(command, commands.Basic.ConsumeOk(tag))


def _consume_queue(channel: AmqpChannel, command: commands.Basic.Consume, tag: str) -> Subscription:
    known = channel.tags.get(tag)
    if known is not None and channel.session.subscriptions.get(known.request.key) is known:
        raise connection_fault(ReplyCode.NOT_ALLOWED, f"consumer tag '{tag}' is in use on this channel")
    name = queue_name(channel, command.queue)
    if name == REPLY_TO:
        name = _reply_queue(channel, no_ack=command.no_ack)
    queue = channel.queues.queue(channel.session, name)
    check_read(channel, name)
    request = SubscribeRequest(
        f"$queue/{name}", DIALECT, qos=0 if command.no_ack else 1, name=(channel.number, tag),
        envelope=AmqpEnvelope(channel.number, tag, channel.peer.frame_bytes_max),
        options=_options(channel, command.arguments, Use.QUEUE),
    )  # fmt: skip
    prefetch = NO_LIMIT if command.no_ack else channel.prefetch
    return channel.queues.consume(
        channel.session, channel.core, queue, request, prefetch, channel.now(), exclusive=command.exclusive
    )


def _fresh_tag(channel: AmqpChannel) -> str:
    """Returns the next free tag of the channel. Tags repeat across clients, so that equal deliveries share bytes."""
    return next(tag for number in channel.tag_numbers if (tag := f"amq.ctag-{number}") not in channel.tags)


def _options(channel: AmqpChannel, arguments: dict[str, Any] | None, use: Use) -> SubscriptionOptions:
    """Reads a consumer's options. ``x-headway-`` may stand before their names. Raises :class:`Refused`.

    Other arguments are of other brokers or the client's own. So a name without the prefix is an option only with a text
    as its value, but for ``patience``: a bare number would be taken for milliseconds."""
    pairs = [
        (name, value if isinstance(value, str) else repr(value)) for name, value in (arguments or {}).items()
        if isinstance(value, str) or name.startswith(PREFIX) or name == "patience"
    ]  # fmt: skip
    options = parse_options(pairs, use, typed=True)
    channel.peer.budget.left -= compile_work(options.selector)
    return options


def _reply_queue(channel: AmqpChannel, *, no_ack: bool) -> str:
    """Declares the channel's own queue for direct replies, and returns its name."""
    if not no_ack:
        raise ChannelFault("replies cannot be acknowledged: consume them with no_ack")
    if channel.reply_queue:
        raise ChannelFault("this channel has a consumer of replies already")
    channel.reply_queue = f"{REPLY_TO}.{secrets.token_urlsafe(16)}"
    terms = read_terms({}, durable=False, exclusive=True, auto_delete=True)
    channel.queues.declare(channel.session, channel.reply_queue, terms, DIALECT, channel.now())
    return channel.reply_queue


def cancel(channel: AmqpChannel, command: commands.Basic.Cancel) -> None:
    tag = command.consumer_tag or ""
    subscription = channel.tags.get(tag)
    if subscription is not None:
        _forget(channel, tag, subscription)
        channel.queues.cancel(subscription, channel.now())
        channel.peer.budget.left -= SUBSCRIBE_WORK
    channel.answer(command, commands.Basic.CancelOk(tag))


def _forget(channel: AmqpChannel, tag: str, subscription: Subscription) -> None:
    del channel.tags[tag]
    queue = subscription.reader.queue
    if queue is not None and queue.name == channel.reply_queue:
        channel.reply_queue = ""


def cancelled(channel: AmqpChannel, subscription: Subscription) -> None:
    """Forgets a consumer that the broker has cancelled, and tells the client if it understands that."""
    tag = subscription.request.label.partition("/")[2]
    if channel.tags.get(tag) is subscription:
        _forget(channel, tag, subscription)
        if channel.peer.cancels:
            channel.say(commands.Basic.Cancel(tag, nowait=True))


# -- polling -----------------------------------------------------------------------------------------------------------


def get(channel: AmqpChannel, command: commands.Basic.Get) -> None:
    name = queue_name(channel, command.queue)
    queue = channel.queues.queue(channel.session, name)
    check_read(channel, name)
    if queue.is_behind(channel.now()):
        channel.peer.budget.begin(_get_later(channel, command, queue))
        return
    request = SubscribeRequest(
        f"$queue/{name}", DIALECT, qos=0 if command.no_ack else 1, polling=True,
        name=(channel.number, "get", name, command.no_ack),
    )  # fmt: skip
    try:
        got = channel.queues.get(channel.session, channel.core, queue, request, NO_LIMIT, channel.now())
    except OSError as error:
        raise connection_fault(ReplyCode.INTERNAL_ERROR, f"the disk failed: {error.strerror or error}") from error
    if got is None:
        channel.say(commands.Basic.GetEmpty())
        return
    channel.write(write_get_ok(
        channel.number, got.delivery_id, got.frame, got.records_left, channel.peer.frame_bytes_max,
        redelivered=got.redelivered,
    ))  # fmt: skip


def _get_later(channel: AmqpChannel, command: commands.Basic.Get, queue: Queue) -> Steps:
    """Gets the next record as soon as its queue has sorted what came and dropped what has expired."""
    while not channel.gone and not queue.ended and queue.is_behind(channel.now()):
        yield 0
    if not channel.gone:
        get(channel, command)


# -- settling ----------------------------------------------------------------------------------------------------------


def refuse(channel: AmqpChannel, command: commands.Basic.Nack | commands.Basic.Reject) -> None:
    multiple = isinstance(command, commands.Basic.Nack) and command.multiple
    do = partial(channel.queues.refuse, channel.core, requeue=command.requeue)
    channel.settle([command.delivery_tag or 0], multiple=multiple, do=do, most=1)


def recover(channel: AmqpChannel, command: commands.Basic.Recover | commands.Basic.RecoverAsync) -> None:
    if isinstance(command, commands.Basic.Recover):
        channel.say(commands.Basic.RecoverOk())  # redeliveries follow it
    steps = channel.queues.recover(channel.core, channel.now(), frozenset(channel.named), requeue=command.requeue)
    channel.peer.budget.begin(steps)


METHODS: dict[type, Any] = {
    commands.Basic.Qos: qos,
    commands.Basic.Consume: consume,
    commands.Basic.Cancel: cancel,
    commands.Basic.Get: get,
    commands.Basic.Nack: refuse,
    commands.Basic.Reject: refuse,
    commands.Basic.Recover: recover,
    commands.Basic.RecoverAsync: recover,
}
