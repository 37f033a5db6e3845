"""Names of queues, exchanges and bindings in permissions, and what a client has to be allowed for each request.

As in RabbitMQ, a binding reads its source and writes to its destination, and a queue with a dead letter exchange
writes to that. What a pattern lets through is put as a topic filter that matches at least as much.
"""

from __future__ import annotations

from headway.core.consumer import QueueTerms, Subscription
from headway.core.message import TOPICS, topic_of
from headway.core.permission import EXCHANGES, QUEUES, Operation, Rights
from headway.core.queue import filter_of, queue_behind
from headway.core.routing import PREDECLARED, Binding, Exchange

ALL = "#"
OWN_NAMES = "amq."
"""Prefix of queue names that only the broker may give."""
WORDS_MAX = 127
"""Patterns with more words are put as one that lets everything through behind these."""


def queue_object(name: str) -> str:
    return QUEUES + name


def exchange_object(name: str) -> str:
    """Returns the name of an exchange. It is one level: "/" is written as "%2F"."""
    return EXCHANGES + name.replace("/", "%2F")


def published_to(exchange: str, topic: str) -> str:
    """Returns the name of what is published to an exchange. ``topic``: the topic of its routing key."""
    if exchange == TOPICS:
        return topic
    if not exchange:
        return queue_object(topic_of(topic))
    return f"{exchange_object(exchange)}/{topic}"


def _everything(exchange: str) -> str:
    return ALL if exchange == TOPICS else f"{QUEUES}#" if not exchange else f"{exchange_object(exchange)}/#"


def check_known(rights: Rights, name: str) -> None:
    """Raises :class:`Refused` if the client may do nothing with the queue of this name. It has to be asked before the
    queue is looked up: the answer is the same whether there is one or not."""
    if not rights.touches(queue_object(name)):
        rights.check(Operation.SUBSCRIBE, queue_object(name))


def may_know_exchange(rights: Rights, name: str) -> bool:
    """Tells whether the client may do something with an exchange. Those of the broker are known to all."""
    return any(name == own for own, _ in PREDECLARED) or rights.touches(f"{exchange_object(name)}/#")


def check_known_exchange(rights: Rights, name: str) -> None:
    """Raises :class:`Refused` if the client may do nothing with the exchange of this name, as ``check_known``."""
    if not may_know_exchange(rights, name):
        rights.check(Operation.SUBSCRIBE, _everything(name))


def let_through(binding: Binding, kind: str) -> str:
    """Returns a filter for the topics that a binding of this kind of exchange lets through."""
    if kind == "direct":
        return topic_of(binding.key)
    if kind != "topic":
        return ALL
    levels = filter_of(binding.key).split("/")
    return "/".join([*levels[:WORDS_MAX], ALL] if len(levels) > WORDS_MAX else levels)


def check_binding(rights: Rights, binding: Binding, source: Exchange, *, own: bool) -> None:
    """Raises :class:`Refused` unless the client may read what the binding lets through and write it to its destination.
    ``own``: the destination is a queue of the client's own."""
    filter = let_through(binding, source.kind)
    rights.check(Operation.SUBSCRIBE, published_to(binding.source, filter))
    if binding.destination.kind == "exchange":
        to = binding.destination.name
        rights.check(Operation.PUBLISH, published_to(to, filter) if to else _everything(to))
    elif not own:
        rights.check(Operation.PUBLISH, queue_object(binding.destination.name))


def check_queue(rights: Rights, name: str, terms: QueueTerms, *, own: bool) -> None:
    """Raises :class:`Refused` unless the client may declare the queue, and write to its dead letter exchange."""
    if not own:
        rights.check(Operation.DECLARE, queue_object(name))
    exchange, key = terms.dead_letter_exchange, terms.dead_letter_key
    if exchange is None:
        return
    if not own:
        rights.check(Operation.SUBSCRIBE, queue_object(name))
    to = _everything(exchange) if key is None else published_to(exchange, topic_of(key))
    rights.check(Operation.PUBLISH, to)


def check_exchange(rights: Rights, exchange: Exchange) -> None:
    """Raises :class:`Refused` unless the client may declare the exchange, and write to its alternate exchange."""
    rights.check(Operation.DECLARE, exchange_object(exchange.name))
    if exchange.alternate is not None:
        rights.check(Operation.SUBSCRIBE, _everything(exchange.name))
        rights.check(Operation.PUBLISH, _everything(exchange.alternate))


def is_own(name: str, terms: QueueTerms) -> bool:
    """Tells whether a queue is its client's own: exclusive, and named by the broker. It needs no permission."""
    return terms.exclusive and name.startswith(OWN_NAMES)


def read_by(subscription: Subscription) -> str | None:
    """Returns what a subscription reads, as a filter; None: a queue of the client's own."""
    queue = queue_behind(subscription)
    if queue is None or queue.ends_with_members:
        return subscription.feed.key.filter
    return None if is_own(queue.name, queue.terms) else queue_object(queue.name)
