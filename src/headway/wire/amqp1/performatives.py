"""The performatives of AMQP 1.0 (2.7), of SASL (5.3.3), and the types that stand in their fields.

Each is a tuple of its fields, in the order of the specification. ``build`` checks that a field is of its type, that it
is there where it has to be, and that there are not more of them. ``encoded`` (replies.py) writes them by the same
types.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from headway.wire.amqp1.values import Described, Symbol, malformed

Annotations = dict[Any, Any]
Fields = dict[str, Any]
"""A map whose keys are symbols."""
Words = Any
"""A symbol, or an array of them."""
String = str
Name = str
"""A symbol."""
Ubyte = int
Ushort = int
Uint = int
Ulong = int


class Open(NamedTuple):
    container_id: String
    hostname: String | None = None
    max_frame_size: Uint | None = None
    channel_max: Ushort | None = None
    idle_time_out: Uint | None = None
    outgoing_locales: Any = None
    incoming_locales: Any = None
    offered_capabilities: Words = None
    desired_capabilities: Words = None
    properties: Fields | None = None


class Begin(NamedTuple):
    remote_channel: Ushort | None
    next_outgoing_id: Uint
    incoming_window: Uint
    outgoing_window: Uint
    handle_max: Uint | None = None
    offered_capabilities: Words = None
    desired_capabilities: Words = None
    properties: Fields | None = None


class Attach(NamedTuple):
    name: String
    handle: Uint
    role: bool
    """True: the client receives."""
    snd_settle_mode: Ubyte | None = None
    rcv_settle_mode: Ubyte | None = None
    source: Any = None
    target: Any = None
    unsettled: Annotations | None = None
    incomplete_unsettled: bool | None = None
    initial_delivery_count: Uint | None = None
    max_message_size: Ulong | None = None
    offered_capabilities: Words = None
    desired_capabilities: Words = None
    properties: Fields | None = None


class Flow(NamedTuple):
    next_incoming_id: Uint | None
    incoming_window: Uint
    next_outgoing_id: Uint
    outgoing_window: Uint
    handle: Uint | None = None
    delivery_count: Uint | None = None
    link_credit: Uint | None = None
    available: Uint | None = None
    drain: bool | None = None
    echo: bool | None = None
    properties: Fields | None = None


class Transfer(NamedTuple):
    handle: Uint
    delivery_id: Uint | None = None
    delivery_tag: bytes | None = None
    message_format: Uint | None = None
    settled: bool | None = None
    more: bool | None = None
    rcv_settle_mode: Ubyte | None = None
    state: Any = None
    resume: bool | None = None
    aborted: bool | None = None
    batchable: bool | None = None


class Disposition(NamedTuple):
    role: bool
    first: Uint
    last: Uint | None = None
    settled: bool | None = None
    state: Any = None
    batchable: bool | None = None


class Detach(NamedTuple):
    handle: Uint
    closed: bool | None = None
    error: Any = None


class End(NamedTuple):
    error: Any = None


class Close(NamedTuple):
    error: Any = None


class SaslInit(NamedTuple):
    mechanism: Name
    initial_response: bytes | None = None
    hostname: String | None = None


class SaslResponse(NamedTuple):
    response: bytes


class Source(NamedTuple):
    address: Any = None
    durable: Uint | None = None
    expiry_policy: Name | None = None
    timeout: Uint | None = None
    dynamic: bool | None = None
    dynamic_node_properties: Annotations | None = None
    distribution_mode: Name | None = None
    filter: Annotations | None = None
    default_outcome: Any = None
    outcomes: Words = None
    capabilities: Words = None


class Target(NamedTuple):
    address: Any = None
    durable: Uint | None = None
    expiry_policy: Name | None = None
    timeout: Uint | None = None
    dynamic: bool | None = None
    dynamic_node_properties: Annotations | None = None
    capabilities: Words = None


class Coordinator(NamedTuple):
    capabilities: Words = None


class Error(NamedTuple):
    condition: Name
    description: String | None = None
    info: Annotations | None = None


class Received(NamedTuple):
    section_number: Uint
    section_offset: Ulong


class Accepted(NamedTuple):
    pass


class Rejected(NamedTuple):
    error: Any = None


class Released(NamedTuple):
    pass


class Modified(NamedTuple):
    delivery_failed: bool | None = None
    undeliverable_here: bool | None = None
    message_annotations: Annotations | None = None


class Declare(NamedTuple):
    global_id: Any = None


class Discharge(NamedTuple):
    txn_id: bytes
    fail: bool | None = None


class TransactionalState(NamedTuple):
    txn_id: bytes
    outcome: Any = None


TRANSFER = 0x14
_TESTS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "bytes": ("binary", lambda it: isinstance(it, bytes)),
    "String": ("a string", lambda it: isinstance(it, str) and not isinstance(it, Symbol)),
    "Name": ("a symbol", lambda it: isinstance(it, Symbol)),
    "Uint": ("a uint", lambda it: type(it) is int and 0 <= it < 1 << 32),
    "Ushort": ("a ushort", lambda it: type(it) is int and 0 <= it < 1 << 16),
    "Ubyte": ("a ubyte", lambda it: type(it) is int and 0 <= it < 1 << 8),
    "Ulong": ("a ulong", lambda it: type(it) is int and it >= 0),
    "bool": ("a boolean", lambda it: isinstance(it, bool)),
    "Annotations": ("a map", lambda it: isinstance(it, dict)),
    "Fields": ("a map", lambda it: isinstance(it, dict)),
}
"""Tests of the types of fields, as the classes name them; Any and Words have none."""
KINDS: dict[int, type[Any]] = {
    0x10: Open, 0x11: Begin, 0x12: Attach, 0x13: Flow, TRANSFER: Transfer, 0x15: Disposition, 0x16: Detach, 0x17: End,
    0x18: Close, 0x1D: Error, 0x23: Received, 0x24: Accepted, 0x25: Rejected, 0x26: Released, 0x27: Modified,
    0x28: Source, 0x29: Target, 0x30: Coordinator, 0x31: Declare, 0x32: Discharge, 0x34: TransactionalState,
    0x41: SaslInit, 0x43: SaslResponse,
}  # fmt: skip
"""By descriptor."""


class _Form(NamedTuple):
    kind: type[Any]
    needed: int
    """How many of its fields have to be there."""
    types: list[tuple[bool, str]]
    """The type of each field, and before it whether it may be null."""


def types_of(kind: type[Any]) -> list[str]:
    """Returns the type of each field, as the class names it."""
    return [said.__forward_arg__.removesuffix(" | None") for said in kind.__annotations__.values()]


def _form(kind: type[Any]) -> _Form:
    optional = [said.__forward_arg__.endswith(" | None") for said in kind.__annotations__.values()]
    types = list(zip(optional, types_of(kind), strict=True))
    return _Form(kind, len(types) - len(kind._field_defaults), types)


_FORMS = {number: _form(kind) for number, kind in KINDS.items()}
_NAMES = {re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower() + ":list": number for number, kind in KINDS.items()}
"""The descriptors in words, behind ``amqp:``."""
FRAMES = {*range(0x10, 0x19)}
"""The descriptors of performatives."""
SASL_FRAMES = {0x41, 0x43}


def descriptor_of(said: object) -> int:
    """Returns a descriptor as a number; 0: it is none that is known here."""
    if isinstance(said, Symbol):
        return _NAMES.get(said.removeprefix("amqp:"), 0)
    return said if type(said) is int else 0


def build(value: object) -> Any:
    """Returns a described value as what it means; any other one unchanged. Raises ProtocolError."""
    if not isinstance(value, Described):
        return value
    known = _FORMS.get(descriptor_of(value.descriptor))
    return value if known is None else _checked(known, value.value)


def _checked(known: _Form, given: object) -> Any:
    kind, needed, types = known
    name = kind.__name__.lower()
    if not isinstance(given, list):
        raise malformed(f"has a {name} that is no list")
    if len(given) > len(types):
        raise malformed(f"has a {name} with {len(given)} fields (at most {len(types)})")
    values: list[Any] = []
    for number, (value, (optional, wanted)) in enumerate(zip(given, types, strict=False)):
        if value is None:
            if number < needed and not optional:
                raise malformed(f"has a {name} without its {kind._fields[number]}")
        elif wanted not in _TESTS:
            value = build(value)
        else:
            what, fits = _TESTS[wanted]
            if not fits(value):
                raise malformed(f"has a {name} whose {kind._fields[number]} is not {what}")
        values.append(value)
    if len(given) < needed:
        raise malformed(f"has a {name} without its {kind._fields[len(given)]}")
    return kind(*values)


def words(value: object) -> tuple[str, ...]:
    """Returns the symbols of a field that takes one or an array of them."""
    if isinstance(value, str):
        return (str(value),)
    return tuple(str(one) for one in value if isinstance(one, str)) if isinstance(value, list) else ()
