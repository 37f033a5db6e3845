"""Items that the decoder finds in a client's bytes."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Any, NamedTuple

from headway.core.message import Run
from headway.wire.amqp1.values import Symbol, malformed, read, skip

# -- sections ----------------------------------------------------------------------------------------------------------
#
# Sections of a message (AMQP 1.0, 3.2): splits an encoded message without reading its values.
#
#     header | delivery annotations | message annotations | properties | application properties | body | footer
#
# What stands before the body, without header and delivery annotations, is the *bare lead*: consumers of AMQP 1.0 get it
# as it came. A body is the payload of a record for everybody. Of what kind it was is kept beside it (``Body``), so that
# consumers of AMQP 1.0 get the same section again.


HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = range(0x70, 0x75)
DATA, SEQUENCE, VALUE, FOOTER = range(0x75, 0x79)
_NAMES = {
    Symbol(f"amqp:{name}"): number for number, name in enumerate(
        ("header:list", "delivery-annotations:map", "message-annotations:map", "properties:list",
         "application-properties:map", "data:binary", "amqp-sequence:list", "amqp-value:*", "footer:map"), HEADER,
    )
}  # fmt: skip


class Body(IntEnum):
    """The kind of section that a payload was the content of."""

    DATA = 0
    STRING = 1
    BINARY = 2
    NULL = 3
    SECTIONS = 4
    """No bytes or text alone: the payload is the encoded sections themselves."""


class Parts(NamedTuple):
    """Where the parts of a message are. ``lead``: the start and end of the bare lead; ``payload``: of the payload, if
    it is one piece (else ``pieces``: of each)."""

    header: tuple[int, int]
    lead: tuple[int, int]
    body: Body
    payload: tuple[int, int]
    pieces: tuple[tuple[int, int], ...] = ()


def _descriptor(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """Returns the number of the section at ``pos``, and where its value begins."""
    if data[pos : pos + 2] == b"\0\x53" and pos + 3 <= end:
        return data[pos + 2], pos + 3
    if data[pos]:
        raise malformed("has something between its sections")
    said, at = read(data, pos + 1, end)
    return (_NAMES.get(said, 0) if isinstance(said, Symbol) else said if type(said) is int else 0), at


def split(data: bytes, pos: int, end: int) -> Parts:
    """Splits the message at ``data[pos:end]``. Raises ProtocolError."""
    header = lead = (pos, pos)
    last = 0
    while pos < end:
        number, at = _descriptor(data, pos, end)
        if not HEADER <= number <= FOOTER:
            raise malformed(f"has an unknown section 0x{number:x}")
        if number <= last:
            raise malformed("has sections in a wrong order")
        if number >= DATA:
            break
        stop = skip(data, at, end)
        last = number
        if number == HEADER:
            header = (at, stop)
        if number <= DELIVERY_ANNOTATIONS:
            lead = (stop, stop)
        else:
            lead = (lead[0], stop)
        pos = stop
    if pos >= end:  # some clients write no section where there is no value
        return Parts(header, lead, Body.NULL, (pos, pos))
    return _body(data, pos, end, header, lead)


def _body(data: bytes, pos: int, end: int, header: tuple[int, int], lead: tuple[int, int]) -> Parts:
    begin, pieces, kind, first = pos, list[tuple[int, int]](), 0, 0
    while pos < end:
        number, at = _descriptor(data, pos, end)
        if number == FOOTER:
            stop = skip(data, at, end)
            if stop != end:
                raise malformed("has something behind its footer")
            break
        if (kind and number != kind) or kind == VALUE or not DATA <= number <= VALUE:
            raise malformed("has sections of different kinds in its body")
        kind, first = number, first or at
        stop = skip(data, at, end)
        if number == DATA:
            pieces.append(_content(data, at, stop))
        pos = stop
    if kind == DATA:
        return Parts(header, lead, Body.DATA, pieces[0], tuple(pieces) if len(pieces) > 1 else ())
    if kind == VALUE:
        code = data[first]
        if code in (0xA0, 0xB0):
            return Parts(header, lead, Body.BINARY, _content(data, first, pos))
        if code in (0xA1, 0xB1):
            return Parts(header, lead, Body.STRING, _content(data, first, pos))
        if code == 0x40:
            return Parts(header, lead, Body.NULL, (pos, pos))
    elif not kind:
        return Parts(header, lead, Body.NULL, (pos, pos))
    return Parts(header, lead, Body.SECTIONS, (begin, pos))


def _content(data: bytes, at: int, stop: int) -> tuple[int, int]:
    """Returns where the bytes of a binary or a string are."""
    code = data[at]
    if code & 0xEF not in (0xA0, 0xA1):
        raise malformed("has a data section that is no binary")
    return at + (5 if code & 0x10 else 2), stop


_SHORT = {Body.DATA: b"\0\x53\x75\xa0", Body.STRING: b"\0\x53\x77\xa1", Body.BINARY: b"\0\x53\x77\xa0"}
_LONG = {Body.DATA: b"\0\x53\x75\xb0", Body.STRING: b"\0\x53\x77\xb1", Body.BINARY: b"\0\x53\x77\xb0"}
NO_VALUE = b"\0\x53\x77\x40"


def body_lead(kind: Body, size: int) -> bytes:
    """Returns the bytes of a body's section before its payload."""
    if kind is Body.SECTIONS:
        return b""
    if kind is Body.NULL:
        return NO_VALUE
    return _SHORT[kind] + bytes((size,)) if size < 256 else _LONG[kind] + size.to_bytes(4, "big")


# -- items -------------------------------------------------------------------------------------------------------------


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
