"""Permissions of AMQP's commands. Without permissions in the config each of these does nothing.

They are those of RabbitMQ: declaring and deleting need ``declare`` (its *configure*), consuming, getting and purging
need ``subscribe`` (its *read*), publishing needs ``publish`` (its *write*), and a binding reads its source and writes
to its destination. A denial raises :class:`Refused`, which closes the channel with 403.
"""

from __future__ import annotations

from headway.core.clients import check_binding, check_exchange, check_known_exchange, check_queue, is_own, queue_object
from headway.core.consumer import QueueTerms
from headway.core.permission import ALL_RIGHTS, EXCHANGES, Operation
from headway.core.routing import PREDECLARED, Binding, Exchange
from headway.server.amqp.channel import AmqpChannel

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
