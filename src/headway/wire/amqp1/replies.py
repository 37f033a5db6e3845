"""Writes what the broker says in AMQP 1.0: whole frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headway.wire.amqp1 import values as writing
from headway.wire.amqp1.items import Layer
from headway.wire.amqp1.performatives import KINDS, Accepted, Error, Rejected, Released, TransactionalState, types_of
from headway.wire.amqp1.performatives import words as words_in
from headway.wire.amqp1.values import NULL, Condition, boolean, described, symbols, ubyte, uint

HEADERS = {Layer.AMQP: b"AMQP\0\1\0\0", Layer.SASL: b"AMQP\3\1\0\0", Layer.TLS: b"AMQP\2\1\0\0"}
EMPTY = b"\0\0\0\x08\x02\0\0\0"
"""A frame that says only that the broker is there."""
DESCRIPTION_BYTES_MAX = 1000
"""A sentence has to fit into the smallest frame that a client may take, or nearly: this is cut to its frame's size."""


def _any(value: Any) -> bytes:
    return encoded(value) if type(value) in _FORMS else writing.value(value)


def _words(value: Any) -> bytes:
    names = words_in(value)
    return symbols(names) if names else NULL


_WRITERS: dict[str, Callable[[Any], bytes]] = {
    "String": writing.string, "Name": writing.symbol, "Uint": uint, "Ushort": writing.ushort, "Ubyte": ubyte,
    "Ulong": writing.ulong, "bool": boolean, "bytes": writing.binary, "Annotations": writing.value,
    "Fields": writing.symbol_map, "Words": _words, "Any": _any,
}  # fmt: skip
"""Writers of the types of fields, as the classes of performatives name them."""
_FORMS = {kind: (number, [_WRITERS[said] for said in types_of(kind)]) for number, kind in KINDS.items()}


def encoded(said: Any) -> bytes:
    """Writes a performative, or what stands in one, with its descriptor."""
    number, writers = _FORMS[type(said)]
    fields = [NULL if value is None else write(value) for write, value in zip(writers, said, strict=True)]
    return described(number, writing.list_of(fields))


def write(channel: int, performative: Any) -> bytes:
    return _frame(channel, encoded(performative))


def frame(channel: int, descriptor: int, fields: list[bytes], *, kind: int = 0) -> bytes:
    """Writes a performative whose fields are written already."""
    return _frame(channel, described(descriptor, writing.list_of(fields)), kind)


def _frame(channel: int, body: bytes, kind: int = 0) -> bytes:
    return (8 + len(body)).to_bytes(4, "big") + bytes((2, kind)) + channel.to_bytes(2, "big") + body


def write_disposition(channel: int, role: bool, first: int, last: int, state: bytes, *, settled: bool = True) -> bytes:
    """Writes the most frequent word. ``role`` True: the broker speaks as the one who receives."""
    fields = [boolean(role), uint(first), uint(last), boolean(settled), state]
    return _frame(channel, described(0x15, writing.list_of(fields)))


# -- SASL --------------------------------------------------------------------------------------------------------------


def sasl_mechanisms(names: Sequence[str]) -> bytes:
    return frame(0, 0x40, [symbols(names)], kind=1)


def sasl_challenge(message: bytes) -> bytes:
    return frame(0, 0x42, [writing.binary(message)], kind=1)


def sasl_outcome(code: int, message: bytes | None = None) -> bytes:
    """``code``: 0 all is well, 1 the login is refused."""
    return frame(0, 0x44, [ubyte(code), NULL if message is None else writing.binary(message)], kind=1)


# -- errors and states of deliveries -----------------------------------------------------------------------------------

ACCEPTED, RELEASED = encoded(Accepted()), encoded(Released())


def error(condition: Condition, text: str, limit: int = DESCRIPTION_BYTES_MAX) -> Error:
    raw = text.encode()[: min(limit, DESCRIPTION_BYTES_MAX)].decode(errors="ignore")
    return Error(condition.symbol, raw)


def rejected(condition: Condition, text: str) -> bytes:
    return encoded(Rejected(error(condition, text, 300)))


def declared(txn_id: bytes) -> bytes:
    """Returns the outcome of a declare."""
    return described(0x33, writing.list_of([writing.binary(txn_id)]))


def accepted_in(txn_id: bytes) -> bytes:
    """Returns the state of a delivery that a transaction accepts."""
    return encoded(TransactionalState(txn_id, Accepted()))
