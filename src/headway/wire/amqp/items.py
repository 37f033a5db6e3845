"""Items that the decoder finds in a client's bytes."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from pamqp import base

from headway.core.message import Run
from headway.wire.amqp.versions import Version


class Opening(NamedTuple):
    """The first eight bytes. ``version`` None: they ask for an unknown version, and nothing more is decoded."""

    version: Version | None


class Method(NamedTuple):
    """A method other than ``basic.publish`` and ``basic.ack``. The values of its arguments are not checked."""

    channel: int
    command: base.Frame


class Access(NamedTuple):
    """``access.request`` of 0-8 and 0-9; every client gets ticket 1."""

    channel: int


class Heartbeat(NamedTuple):
    pass


class Address(msgspec.Struct, frozen=True):
    """The arguments of a ``basic.publish``. ``topic`` is the topic of its routing key."""

    exchange: str
    routing_key: str
    mandatory: bool
    immediate: bool
    topic: str


class AckBatch(NamedTuple):
    """Neighbouring ``basic.ack`` of one channel, all single or all ``multiple``; tags in the order in which they
    came."""

    channel: int
    tags: tuple[int, ...]
    multiple: bool


class PublishedRun(NamedTuple):
    """Messages that differ only in their bodies. ``properties`` are flags and values as they came, not parsed; of the
    run only topic and exchange are set."""

    channel: int
    address: Address
    properties: bytes
    run: Run


class Oversize(NamedTuple):
    """A message that is larger than allowed; its body is skipped. The channel is to be closed with 311."""

    channel: int
    address: Address
    size: int


Item = Opening | Method | Access | Heartbeat | AckBatch | PublishedRun | Oversize
