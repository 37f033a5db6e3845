"""Destinations of JMS: which queues and topics a name means.

A name may be composite: ``a,b`` names two of its own kind, and ``queue://a,topic://b`` one of each. The options behind
a question mark are read by the client alone, which does not send them.
"""

from __future__ import annotations

from headway.core.base import Reason, Refused
from headway.server.peers import parts_of
from headway.wire.openwire.codes import Type
from headway.wire.openwire.marshalling import Destination

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
