"""Items that the decoder finds in a client's bytes."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from headway.core.message import Run
from headway.wire.amqp1.sections import Body


class Layer(Enum):
    """The layer that a protocol header asks for."""

    AMQP = 0
    TLS = 2
    SASL = 3
    UNKNOWN = -1


class Opening(NamedTuple):
    """A protocol header. After an unknown one nothing more is decoded."""

    layer: Layer


class Frame(NamedTuple):
    """A performative other than a transfer."""

    channel: int
    performative: Any


class SaslFrame(NamedTuple):
    performative: Any


class Empty(NamedTuple):
    """A frame that says only that its client is there."""


class Content(NamedTuple):
    """The equal parts of neighbouring messages: their bare lead, their header and the kind of their bodies."""

    lead: bytes
    header: bytes
    body: Body


class Transfers(NamedTuple):
    """Neighbouring messages on one link that differ only in their bodies. ``run`` lacks its topic. ``frames``: in how
    many frames they came. ``state``: the delivery state that each came with."""

    channel: int
    handle: int
    first_id: int
    settled: bool
    content: Content
    run: Run
    frames: int
    state: Any = None
    """That of a transaction, or None."""
    tag: bytes = b""
    """The tag of the first."""


class Lost(NamedTuple):
    """A message that did not come whole: it was aborted by its client, was too large (``size``), or had no form."""

    channel: int
    handle: int
    delivery_id: int
    settled: bool
    frames: int
    aborted: bool
    text: str = ""


Item = Opening | Frame | SaslFrame | Empty | Transfers | Lost
