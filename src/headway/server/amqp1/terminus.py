"""Termini: what an address means, and what a consumer wants of it.

Rules, in this order:
- The form of an address may say what it is (wire/amqp1/properties.py).
- Else the capabilities of the terminus do: ``queue``, ``topic``, and the temporary ones.
- Else a queue of that name, or an exchange, is meant if there is one.
- Else a name with a slash or a wildcard is a topic, and any other one a queue, which is made.

A topic's name has slashes between its words, as in MQTT, and ``+`` and ``#`` as wildcards; or, without a slash, dots,
with ``*``, ``#`` and ``>``.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from headway.core.base import Reason, Refused
from headway.core.clients import check_known_exchange, may_know_exchange, queue_object
from headway.core.consumer import PREFIX
from headway.core.message import TOPICS, BadTopic, validate_filter, validate_topic
from headway.core.permission import Rights
from headway.server.amqp1.ports import LinkFault
from headway.server.engine import Engine
from headway.server.peers import filter_of, topic_named
from headway.wire.amqp1.performatives import Source, words
from headway.wire.amqp1.properties import OPTION, Kind, read_address
from headway.wire.amqp1.values import Condition, Described, Symbol

QUEUE_WORDS, TOPIC_WORDS = {"queue", "temporary-queue"}, {"topic", "temporary-topic"}
SELECTORS = {"apache.org:selector-filter:string", 0x0000_468C_0000_0004}
NO_LOCAL = {"apache.org:no-local-filter:list", 0x0000_468C_0000_0003}
BINDINGS = {
    "apache.org:legacy-amqp-topic-binding:string", 0x0000_468C_0000_0001,
    "apache.org:legacy-amqp-direct-binding:string", 0x0000_468C_0000_0000,
}  # fmt: skip
_WILD = "*#+>"


class Node(Enum):
    QUEUE = "queue"
    TOPIC = "topic"
    EXCHANGE = "exchange"


class Place(NamedTuple):
    """The meaning of an address. ``name``: of a queue, of an exchange, or of a topic in the broker's form (a filter for
    consumers). ``key``: the routing key for an exchange; None: each message says it as its subject."""

    node: Node
    name: str
    key: str | None = None


def place_of(engine: Engine, rights: Rights, address: object, capabilities: object, *, filter: bool) -> Place:
    """Returns what an address means; ``filter``: for a consumer, so there may be wildcards. Raises LinkFault,
    Refused."""
    if not isinstance(address, str) or not address:
        raise LinkFault(Condition.INVALID_FIELD, "there is no address, and it is to be a text")
    kind, name, key = read_address(address)
    router, said = engine.broker.registry.router, set(words(capabilities))
    if kind is Kind.PLAIN:
        if said & QUEUE_WORDS:
            kind = Kind.QUEUE
        elif said & TOPIC_WORDS:
            kind = Kind.TOPIC
        elif name in router.queues and rights.touches(queue_object(name)):
            kind = Kind.QUEUE
        elif name in router.exchanges.by_name and may_know_exchange(rights, name):
            return Place(Node.EXCHANGE, name)
        else:
            kind = Kind.TOPIC if any(char in name for char in "/" + _WILD) else Kind.QUEUE
    if kind is Kind.EXCHANGE:
        check_known_exchange(rights, name)
        if name not in router.exchanges.by_name:
            raise LinkFault(Condition.NOT_FOUND, f"there is no exchange '{name}'")
        return Place(Node.EXCHANGE, name, key or None)
    if not name:
        raise LinkFault(Condition.INVALID_FIELD, f"the address {address!r} has no name in it")
    return Place(Node.QUEUE, name) if kind is Kind.QUEUE else Place(Node.TOPIC, topic_in(name, filter=filter))


def topic_in(name: str, *, filter: bool) -> str:
    """Returns a topic, or a filter, in the broker's form. Raises Refused."""
    try:
        if "/" in name or "+" in name:
            return validate_filter(name) if filter else validate_topic(name)
        return filter_of(name) if filter else topic_named(name)
    except BadTopic as error:
        raise Refused(Reason.PROTOCOL_ERROR, str(error)) from error


def filter_under(place: Place, key: str | None) -> str:
    """Returns the filter of the topics that a binding key of ``amq.topic`` leads to. Raises Refused."""
    assert place.name == TOPICS
    return filter_of(key) if key else "#"


class Wishes(NamedTuple):
    """The wishes that the filters of a source and the properties of its link say. ``known``: the filters that are in
    force."""

    options: list[tuple[str, str]]
    no_local: bool
    binding: str | None
    known: dict[object, object]

    def without_no_local(self) -> Wishes:
        """Returns them for a queue, which gives its messages to whoever comes."""
        known = {name: given for name, given in self.known.items() if _named(name, given) not in NO_LOCAL}
        return self._replace(no_local=False, known=known)


def _named(name: object, given: object) -> object:
    return given.descriptor if isinstance(given, Described) else name


def wishes_of(source: Source, properties: dict[Any, Any] | None) -> Wishes:
    """Reads the filters of a source. Those of other names than the broker's are left out, as the specification says.
    Raises Refused."""
    options: list[tuple[str, str]] = []
    known: dict[object, object] = {}
    no_local, binding = False, None
    for name, given in (source.filter or {}).items():
        what, value = _named(name, given), given.value if isinstance(given, Described) else given
        if isinstance(what, str) and what.startswith(OPTION):
            options.append((PREFIX + what.removeprefix(OPTION), _text(value)))
        elif what in SELECTORS or (what == "selector" and isinstance(value, str)):
            options.append(("selector", _text(value)))
        elif what in NO_LOCAL:
            no_local = True
        elif what in BINDINGS:
            binding = _text(value)
        else:
            continue
        known[name] = given
    for name, value in (properties or {}).items():
        if isinstance(name, Symbol) and name.startswith(OPTION):
            options.append((PREFIX + name.removeprefix(OPTION), _text(value)))
    return Wishes(options, no_local, binding, known)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
