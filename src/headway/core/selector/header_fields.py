"""JMS's header fields in selectors, of records that any protocol brought.

A field has the value that a consumer of JMS sees in the message, so a selector wants what its application would. Names
that begin with JMS are JMS's own (3.5.1): one that is no field, or whose value no selector can know, is a mistake and
refused, for it would match nothing for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import NamedTuple

from headway.core.message import GROUP, GROUP_SEQUENCE, TOPICS, Properties, Record, Run, Said, routing_key_of

DEFAULT_PRIORITY = 4
OWN_ID = "ID:headway"
"""The beginning of the ids of messages that came without one, as consumers of JMS see them."""

Message = Record | Run


def priority_in(properties: Properties) -> int:
    """Returns the priority from 0 to 9, from the user property "priority"; 4 if that is missing or invalid."""
    value = properties.user_value("priority") if properties.user else None
    return ord(value) - 48 if value and len(value) == 1 and "0" <= value <= "9" else DEFAULT_PRIORITY


class HeaderField(NamedTuple):
    kind: str
    """Text or number."""
    read: Callable[[Said, Message], object]
    differs: bool = False
    """Whether records of one run may have different values (``Run.own``)."""


def _destination(_: Said, message: Message) -> str:
    if message.exchange == TOPICS:
        return f"topic://{routing_key_of(message.topic)}"
    return f"{'topic' if message.exchange else 'queue'}://{routing_key_of(message.topic)}"


def _reply_to(said: Said, _: Message) -> str | None:
    if said.reply_to is None:
        return None
    name, is_topic = said.reply_to
    return f"topic://{routing_key_of(name)}" if is_topic else f"queue://{name}"


def _priority(said: Said, message: Message) -> int:
    return priority_in(message.properties) if said.priority is None else min(said.priority, 9)


def _expiration(said: Said, _: Message) -> int:
    return said.timestamp_ms + said.expiration_ms if said.timestamp_ms and said.expiration_ms else 0


def _group_sequence(said: Said, _: Message) -> int | None:
    value = said.headers.get(GROUP_SEQUENCE)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        return int(value)
    return value if type(value) is int else None


HEADER_FIELDS = {
    "JMSCorrelationID": HeaderField("text", lambda said, _: said.correlation_id),
    "JMSDeliveryMode": HeaderField(
        "text", lambda said, message: "PERSISTENT" if said.persistent or message.qos else "NON_PERSISTENT"
    ),
    "JMSDestination": HeaderField("text", _destination),
    "JMSExpiration": HeaderField("number", _expiration, differs=True),
    "JMSMessageID": HeaderField("text", lambda said, _: said.message_id or OWN_ID, differs=True),
    "JMSPriority": HeaderField("number", _priority),
    "JMSReplyTo": HeaderField("text", _reply_to),
    "JMSTimestamp": HeaderField("number", lambda said, _: said.timestamp_ms or 0, differs=True),
    "JMSType": HeaderField("text", lambda said, _: said.type),
    "JMSXAppID": HeaderField("text", lambda said, _: said.app_id),
    "JMSXGroupID": HeaderField("text", lambda said, _: said.headers.get(GROUP)),
    "JMSXGroupSeq": HeaderField("number", _group_sequence),
    "JMSXUserID": HeaderField("text", lambda said, _: said.user_id),
}
_UNKNOWABLE = {
    "JMSRedelivered": "differs from one delivery to the next",
    "JMSXDeliveryCount": "differs from one delivery to the next",
    "JMSDeliveryTime": "is not kept: messages are delivered at once", "JMSXState": "is not kept",
    "JMSXProducerTXID": "is not kept", "JMSXConsumerTXID": "is not kept", "JMSXRcvTimestamp": "is not kept",
}  # fmt: skip


FORMER = {"x-headway-kept-type": "JMSType", "x-headway-kept-correlation": "JMSCorrelationID"}
"""Names in selectors of durable subscriptions from before 28 November 2026, and the fields that they mean."""


def is_reserved(name: str) -> bool:
    """True if the name is JMS's own; ``JMS_`` begins names of vendors."""
    return name.startswith("JMS") and name[3:4].isupper()


def why_not(name: str) -> str:
    """Returns what is wrong with a reserved name that is no field."""
    if name in _UNKNOWABLE:
        return f"{name} {_UNKNOWABLE[name]}; a selector cannot use it"
    meant = get_close_matches(name[:40], HEADER_FIELDS, 1)
    return f"there is no header field {name[:40]}" + (f"; did you mean {meant[0]}?" if meant else "")
