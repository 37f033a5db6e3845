"""A request to connect, with the will of the client."""

from __future__ import annotations

from math import inf
from typing import Final

import msgspec

from headway.core.allowance import UNLIMITED, Allowance
from headway.core.consumer.credit import MQTT_ID_MAX
from headway.core.message import Record
from headway.core.permission import ALL_RIGHTS, Rights


class Will(msgspec.Struct, frozen=True):
    """A record to publish when the connection ends without a disconnect: ``delay_s`` later, unless the client is back.
    """

    record: Record
    delay_s: float = 0.0
    lifetime_s: float = inf

    @property
    def size(self) -> int:
        """Memory in bytes."""
        return self.record.size

    def permitted(self, rights: Rights) -> bool:
        """Tells whether a client with these rights may leave it."""
        return rights.may_publish(self.record.topic)


class NoWill(Will, frozen=True):
    """The will of a client that has none."""

    def permitted(self, rights: Rights) -> bool:
        return True


NO_WILL: Final = NoWill(Record("", b""))


class ConnectRequest(msgspec.Struct, frozen=True):
    """A request to connect. The session outlives the connection by ``expiry_s``; inf means for ever."""

    client: str
    listener: str
    clean_start: bool = True
    expiry_s: float = 0.0
    credit: int = MQTT_ID_MAX
    """Deliveries that the client permits to be in flight (MQTT Receive Maximum)."""
    max_packet_bytes: int = 2**62
    username: str | None = None
    protocol: str = ""
    will: Will = NO_WILL
    rights: Rights = ALL_RIGHTS
    """The client's rights."""
    allowance: Allowance = UNLIMITED
    """The allowance of the client's user."""
    owner: str = ""
    """The owner that the client's memory counts to, in words: its user, or its address. Empty: it is not counted.
    """
