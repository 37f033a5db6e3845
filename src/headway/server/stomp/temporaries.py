"""Temporary queues and topics of one connection, by the names that its client has for them."""

from __future__ import annotations

import secrets

from headway.core.base import Reason, Refused
from headway.core.message import topic_of
from headway.server.peers import NamedQueues
from headway.wire.common import Address
from headway.wire.stomp.destinations import Destination, Kind

TEMPORARIES_MAX = 1000
NAME_CHARS_MAX = 255


class Temporaries:
    __slots__ = ("_addresses", "_named")

    def __init__(self, named: NamedQueues) -> None:
        self._named = named
        self._addresses: dict[Destination, Address] = {}

    def address(self, destination: Destination) -> Address:
        """Returns the address of a temporary queue or topic, which is made when it is first named. Raises
        :class:`Refused`."""
        address = self._addresses.get(destination)
        if address is None:
            if len(self._addresses) >= TEMPORARIES_MAX:
                text = f"a connection may have {TEMPORARIES_MAX} temporary destinations"
                raise Refused(Reason.TOO_MANY_QUEUES, text)
            if len(destination.name) > NAME_CHARS_MAX:
                text = f"the name of a temporary destination has {len(destination.name)} characters"
                raise Refused(Reason.PROTOCOL_ERROR, f"{text} (at most {NAME_CHARS_MAX})")
            if destination.kind is Kind.TEMP_QUEUE:
                address = Address(self._named.temporary().name)
            else:
                address = Address(topic_of(f"temp-topic.{secrets.token_urlsafe(16)}"), is_topic=True)
            self._addresses[destination] = address
        return address
