"""Ports: what the parts of OpenWire's side of a connection know of each other."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from math import inf
from typing import Protocol

import msgspec

from headway.core.base import HeadwayError, Reason, Refused
from headway.core.consumer import Session, SubscriptionOptions, Use, parse_options
from headway.core.message import Record, topic_of
from headway.core.selector import MAX_SELECTOR_CHARS, BadSelector, compile_selector, typed
from headway.server.config import ListenerTable
from headway.server.connections import SUBSCRIBE_WORK, Connection
from headway.server.engine import Engine
from headway.server.peers import CLOSING, BasePeer, NamedQueues, parts_of, virtual_topic_of
from headway.wire.openwire import replies
from headway.wire.openwire.codes import Form, Type
from headway.wire.openwire.decoder import Item, OpenWireDecoder
from headway.wire.openwire.marshalling import Destination
from headway.wire.openwire.replies import DESTINATION_ERROR, SELECTOR_ERROR

# -- ports -------------------------------------------------------------------------------------------------------------


SILENCE = 1 / 1.5
"""Factor for the keep-alive: the client's own limit is the one that counts, and the engine allows one and a half."""


class TemporariesSide(Protocol):
    """Temporary destinations, as consumers and publishers know them."""

    def check_owner(self, destination: Destination) -> None: ...
    def check_there(self, destination: Destination) -> None: ...
    def known(self, topic: str) -> Iterator[Record]: ...


class ClientSide(BasePeer[Item], ABC):
    """The peer, as its parts know it."""

    __slots__ = ("client_id", "connection_id", "objects", "queues", "temporaries", "wire")

    decoder: OpenWireDecoder
    queues: NamedQueues
    """Set when the client is let in."""
    temporaries: TemporariesSide

    def __init__(self, engine: Engine, connection: Connection, listener: ListenerTable) -> None:
        super().__init__(engine, connection, listener, OpenWireDecoder(listener.packet_bytes_max))
        self.wire = Form()
        self.objects = 0
        """The client keeps so many objects by numbers."""
        self.connection_id = ""
        self.client_id = ""
        """By which durable subscriptions are found again; the session may have another name."""

    @abstractmethod
    def opened(self, session: Session) -> None: ...

    @property
    def gone(self) -> bool:
        """Whether the connection has ended, or is about to."""
        return self.session is None or not self.connection.open or self.state is CLOSING

    def make_queue(self, destination: Destination) -> None:
        """Makes a queue that is sent to, if there is none. Raises :class:`JmsFault`, :class:`Refused`."""
        if destination.kind is Type.TEMP_QUEUE:
            self.temporaries.check_there(destination)
        else:
            self.queues.check_send(destination.name)
            if not self.queues.knows(destination.name):
                self.budget.left -= SUBSCRIBE_WORK
            self.named(destination)

    def named(self, destination: Destination) -> None:
        """Makes a queue, if there is none of its name. Raises :class:`JmsFault`, :class:`Refused`."""
        name = destination.name
        if is_pattern(name) and not self.queues.knows(name):
            raise JmsFault(f"{destination} has wildcards: it can be consumed from, and is no queue", DESTINATION_ERROR)
        self.queues.named(name)

    def set_idle(self, idle_s: float) -> None:
        self.heartbeat_s = idle_s
        self.keep_alive_s = idle_s * SILENCE or inf


# -- faults ------------------------------------------------------------------------------------------------------------
#
# Faults: what a client is told when something is refused. JMS's clients throw an exception of a Java class.


_CLASSES = {
    Reason.NOT_AUTHORIZED: replies.SECURITY_ERROR,
    Reason.NOT_FOUND: replies.DESTINATION_ERROR,
    Reason.RESOURCE_LOCKED: replies.DESTINATION_ERROR,
    Reason.NOT_ALLOWED: replies.STATE_ERROR,
} | dict.fromkeys((
    Reason.QUEUE_LENGTH, Reason.TOO_MANY_SUBSCRIPTIONS, Reason.TOO_MANY_QUEUES, Reason.CLIENT_MEMORY, Reason.USER_LIMIT,
    Reason.MEMORY_LIMIT,
), replies.FULL_ERROR)  # fmt: skip


class JmsFault(HeadwayError):
    """The client asked for what cannot be had. It gets an exception of a class of its own; the connection goes on."""

    def __init__(self, text: str, java_class: str = replies.JMS_ERROR) -> None:
        super().__init__(text)
        self.java_class = java_class


def class_of(fault: HeadwayError) -> str:
    """Returns the Java class of the exception that tells of a fault."""
    if isinstance(fault, JmsFault):
        return fault.java_class
    return class_of_reason(fault.reason) if isinstance(fault, Refused) else replies.JMS_ERROR


def class_of_reason(reason: Reason) -> str:
    return _CLASSES.get(reason, replies.JMS_ERROR)


# -- destinations ------------------------------------------------------------------------------------------------------
#
# Destinations of JMS: which queues and topics a name means.
#
# A name may be composite: ``a,b`` names two of its own kind, and ``queue://a,topic://b`` one of each. The options
# behind a question mark are read by the client alone, which does not send them.


PARTS_MAX = 64
NAME_CHARS_MAX = 255
_SCHEMES = {
    "queue://": Type.QUEUE, "topic://": Type.TOPIC, "temp-queue://": Type.TEMP_QUEUE, "temp-topic://": Type.TEMP_TOPIC,
}  # fmt: skip


def each_of(destination: Destination | None) -> list[Destination]:
    """Returns the destinations that a composite one has. Raises :class:`Refused`."""
    if destination is None:
        raise Refused(Reason.NOT_FOUND, "there is no destination")
    if destination.name.count(",") >= PARTS_MAX:
        count = destination.name.count(",") + 1
        raise Refused(Reason.PROTOCOL_ERROR, f"a destination of {count} parts (at most {PARTS_MAX})")
    parts = [_part(destination.kind, part) for part in parts_of(destination.name)]
    if not parts:
        raise Refused(Reason.NOT_FOUND, "a destination without a name")
    for part in parts:
        if len(part.name) > NAME_CHARS_MAX:
            raise Refused(Reason.PROTOCOL_ERROR, f"a name of {len(part.name)} characters (at most {NAME_CHARS_MAX})")
    return parts


def _part(kind: Type, name: str) -> Destination:
    for scheme, other in _SCHEMES.items():
        if name.startswith(scheme):
            return Destination(other, name.removeprefix(scheme))
    return Destination(kind, name)


def has_wildcards(name: str) -> bool:
    return any(word in ("*", ">") for word in name.split("."))


def is_pattern(name: str) -> bool:
    """Tells whether a name means all queues that match, and not that of a virtual topic with wildcards."""
    return has_wildcards(name) and virtual_topic_of(name) is None


# -- options -----------------------------------------------------------------------------------------------------------
#
# Options of a consumer, from what a client of JMS can say: its selector, and hints in front of it.
#
# JMS has no room for options, and the client sends only those of its own from a destination's ``?consumer.…``. But it
# hands on a selector as it is, and SQL has hints: a comment that begins with a plus sign. So
#
#     session.createConsumer(topic, "/*+ conflate=500ms snapshot=true */ delay > 30")
#
# has the options of the house (core/consumer/request.py) before the condition. A value with spaces is in
# single quotes, as SQL's texts are: ``order_by='/price DESC'``. Without a condition one writes TRUE, because the client
# wants one.


_HINTS_BEGIN = re.compile(r"\s*/\*\+")
_HINT = re.compile(r"\s*([^\s='*]+)(?:=('(?:[^']|'')*'|[^\s']\S*?)?)?(?=\s|\*/)")
_HINTS_END = re.compile(r"\s*\*/")
_TOKEN = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|/\*.*?(?:\*/|\Z)", re.DOTALL)
"""A comment that does not end takes all that is left, so that its end is looked for once."""


def options_of(
    hints: list[tuple[str, str]], condition: str | None, use: Use = Use.SUBSCRIPTION
) -> SubscriptionOptions:
    """Returns the options of a consumer with these hints and this condition (``split``). Raises :class:`Refused`."""
    options = parse_options(hints, use)
    return options if condition is None else msgspec.structs.replace(options, selector=typed(condition))


def split(selector: str) -> tuple[list[tuple[str, str]], str | None]:
    """Returns the hints of a selector, name and value each, and its condition; None: there is
    none. Raises :class:`JmsFault`."""
    if len(selector) > MAX_SELECTOR_CHARS:
        text = f"the selector has {len(selector)} characters, its hints included; {MAX_SELECTOR_CHARS} are allowed"
        raise JmsFault(text, SELECTOR_ERROR)
    hints: list[tuple[str, str]] = []
    at = 0
    while (begin := _HINTS_BEGIN.match(selector, at)) is not None:
        at = begin.end()
        while (end := _HINTS_END.match(selector, at)) is None:
            hint = _HINT.match(selector, at)
            if hint is None:
                text = f"the hints in {selector[:200]!r}: expected NAME=VALUE or */ at {selector[at : at + 40]!r}"
                raise JmsFault(text, SELECTOR_ERROR)
            name, value = hint.groups()
            hints.append((name, _unquoted(value) or "true"))
            at = hint.end()
        at = end.end()
    selector = selector[at:]
    condition = _TOKEN.sub(_without_comment, selector).strip()
    if not condition or condition.upper() == "TRUE":
        return hints, None
    try:
        compile_selector(typed(condition))
    except BadSelector as error:
        raise JmsFault(f"the selector {selector[:200]!r}: {error}", SELECTOR_ERROR) from None
    return hints, condition


def about_destination(name: str) -> str:
    """Returns a condition on the broker's advisories: that they are about consumers of this queue or topic."""
    quoted = name.replace("'", "''")
    return f"filter IN ('{quoted}', '{topic_of(quoted)}', '$queue/{quoted}')"


def _unquoted(value: str | None) -> str | None:
    return value[1:-1].replace("''", "'") if value and value.startswith("'") else value


def _without_comment(token: re.Match[str]) -> str:
    text = token[0]
    return " " if text.startswith("/*") and text.endswith("*/") else text
