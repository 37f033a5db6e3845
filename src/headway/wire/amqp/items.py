"""Items that the decoder finds in a client's bytes."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from pamqp import base

from headway.core.message import Run
from headway.wire.amqp.acks import AckBatch
from headway.wire.amqp.versions import Version


class Opening(NamedTuple):
    """The first eight bytes; ``version`` None: they ask for one there is not, and nothing more is decoded."""

    version: Version | None


class Method(NamedTuple):
    """Any but ``basic.publish`` and ``basic.ack``. Its command's arguments have not been looked at."""

    channel: int
    command: base.Frame


class Access(NamedTuple):
    """``access.request`` of 0-8 and 0-9: whoever asks is given ticket 1."""

    channel: int


class Heartbeat(NamedTuple):
    pass


class Address(msgspec.Struct, frozen=True):
    """A ``basic.publish``. ``topic``: that of its routing key."""

    exchange: str
    routing_key: str
    mandatory: bool
    immediate: bool
    topic: str


class PublishedRun(NamedTuple):
    """Messages that are equal but for their bodies. ``properties``: flags and values as they came, not looked at; nor
    has the run any but topic and exchange."""

    channel: int
    address: Address
    properties: bytes
    run: Run


class Oversize(NamedTuple):
    """A message that is larger than allowed; its body is not kept. The channel is to be closed with 311."""

    channel: int
    address: Address
    size: int


Item = Opening | Method | Access | Heartbeat | AckBatch | PublishedRun | Oversize
