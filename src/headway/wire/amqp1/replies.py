"""Writes what the broker says in AMQP 1.0: whole frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headway.wire.amqp1 import writing
from headway.wire.amqp1.codes import Condition
from headway.wire.amqp1.items import Layer
from headway.wire.amqp1.performatives import Attach, Coordinator, Source, Target
from headway.wire.amqp1.writing import NULL, boolean, string, symbol, symbols, ubyte, uint, ulong, ushort

HEADERS = {Layer.AMQP: b"AMQP\0\1\0\0", Layer.SASL: b"AMQP\3\1\0\0", Layer.TLS: b"AMQP\2\1\0\0"}
EMPTY = b"\0\0\0\x08\x02\0\0\0"
"""A frame that says only that the broker is there."""
ACCEPTED, RELEASED = writing.described(0x24, writing.LIST0), writing.described(0x26, writing.LIST0)
DESCRIPTION_BYTES_MAX = 1000
"""A sentence has to fit into the smallest frame that a client may take, or nearly: this is cut to its frame's size."""


def frame(channel: int, descriptor: int, fields: list[bytes], *, kind: int = 0) -> bytes:
    body = writing.described(descriptor, writing.list_of(fields))
    return (8 + len(body)).to_bytes(4, "big") + bytes((2, kind)) + channel.to_bytes(2, "big") + body


def _maybe(value: Any, write: Any) -> bytes:
    return NULL if value is None else write(value)


def error(condition: Condition, text: str, limit: int = DESCRIPTION_BYTES_MAX) -> bytes:
    raw = text.encode()[: min(limit, DESCRIPTION_BYTES_MAX)].decode(errors="ignore")
    return writing.described(0x1D, writing.list_of([symbol(condition.symbol), string(raw)]))


def rejected(condition: Condition, text: str) -> bytes:
    return writing.described(0x25, writing.list_of([error(condition, text, 300)]))


# -- SASL --------------------------------------------------------------------------------------------------------------


def sasl_mechanisms(names: Sequence[str]) -> bytes:
    return frame(0, 0x40, [symbols(names)], kind=1)


def sasl_challenge(message: bytes) -> bytes:
    return frame(0, 0x42, [writing.binary(message)], kind=1)


def sasl_outcome(code: int, message: bytes | None = None) -> bytes:
    """``code``: 0 all is well, 1 the login is refused."""
    return frame(0, 0x44, [ubyte(code), _maybe(message, writing.binary)], kind=1)


# -- connection and sessions -------------------------------------------------------------------------------------------


def write_open(container: str, frame_bytes_max: int, channel_max: int, idle_ms: int | None,
               properties: Mapping[str, object], offered: Sequence[str] = ()) -> bytes:  # fmt: skip
    return frame(0, 0x10, [
        string(container), NULL, uint(frame_bytes_max), ushort(channel_max), _maybe(idle_ms, uint), NULL, NULL,
        symbols(offered) if offered else NULL, NULL, writing.symbol_map(properties),
    ])  # fmt: skip


def write_close(failure: bytes = NULL) -> bytes:
    return frame(0, 0x18, [failure])


def write_begin(channel: int, remote: int, next_id: int, incoming: int, outgoing: int, handle_max: int) -> bytes:
    return frame(channel, 0x11, [ushort(remote), uint(next_id), uint(incoming), uint(outgoing), uint(handle_max)])


def write_end(channel: int, failure: bytes = NULL) -> bytes:
    return frame(channel, 0x17, [failure])


def write_flow(channel: int, session: Sequence[int | None], link: Sequence[int | None] = (), *,
               available: int | None = None, drain: bool = False,
               properties: Mapping[str, object] | None = None) -> bytes:  # fmt: skip
    """``session``: next incoming id, incoming window, next outgoing id, outgoing window. ``link``: handle, delivery
    count, credit; empty: it is about the session alone."""
    fields = [_maybe(value, uint) for value in session]
    if link:
        fields += [_maybe(value, uint) for value in link]
        fields += [_maybe(available, uint), boolean(drain), NULL, _maybe(properties, writing.symbol_map)]
    return frame(channel, 0x13, fields)


def write_disposition(channel: int, role: bool, first: int, last: int, state: bytes, *, settled: bool = True) -> bytes:
    """``role`` True: the broker speaks as the one who receives."""
    return frame(channel, 0x15, [boolean(role), uint(first), uint(last), boolean(settled), state])


# -- links -------------------------------------------------------------------------------------------------------------


def write_detach(channel: int, handle: int, *, closed: bool, failure: bytes = NULL) -> bytes:
    return frame(channel, 0x16, [uint(handle), boolean(closed), failure])


def write_attach(channel: int, attach: Attach, offered: Sequence[str] = ()) -> bytes:
    """``attach``: as the broker says it; ``role`` is the broker's."""
    return frame(channel, 0x12, [
        string(attach.name), uint(attach.handle), boolean(attach.role), _maybe(attach.snd_settle_mode, ubyte),
        _maybe(attach.rcv_settle_mode, ubyte), _source(attach.source), _target(attach.target),
        _maybe(attach.unsettled, writing.value), NULL, _maybe(attach.initial_delivery_count, uint),
        _maybe(attach.max_message_size, ulong), symbols(offered) if offered else NULL, NULL,
        _maybe(attach.properties, writing.symbol_map),
    ])  # fmt: skip


def _source(source: Any) -> bytes:
    if not isinstance(source, Source):
        return NULL
    return writing.described(0x28, writing.list_of([
        _maybe(source.address, string), _maybe(source.durable, uint), _maybe(source.expiry_policy, symbol),
        _maybe(source.timeout, uint), _maybe(source.dynamic, boolean), NULL,
        _maybe(source.distribution_mode, symbol), _maybe(source.filter, writing.value), NULL,
        _words(source.outcomes), _words(source.capabilities),
    ]))  # fmt: skip


def _target(target: Any) -> bytes:
    if isinstance(target, Coordinator):
        return writing.described(0x30, writing.list_of([_words(target.capabilities)]))
    if not isinstance(target, Target):
        return NULL
    return writing.described(0x29, writing.list_of([
        _maybe(target.address, string), _maybe(target.durable, uint), _maybe(target.expiry_policy, symbol),
        _maybe(target.timeout, uint), _maybe(target.dynamic, boolean), NULL, _words(target.capabilities),
    ]))  # fmt: skip


def _words(names: Any) -> bytes:
    return symbols([str(name) for name in names]) if names else NULL


def declared(txn_id: bytes) -> bytes:
    """Returns the outcome of a declare."""
    return writing.described(0x33, writing.list_of([writing.binary(txn_id)]))


def in_transaction(txn_id: bytes, outcome: bytes) -> bytes:
    """Returns the state of a delivery that belongs to a transaction."""
    return writing.described(0x34, writing.list_of([writing.binary(txn_id), outcome]))
