"""The performatives of AMQP 1.0 (2.7), of SASL (5.3.3), and the types that stand in their fields.

Each is a tuple of its fields, in the order of the specification. ``read_performative`` checks that a field is of its
type, that it is there where it has to be, and that there are not more of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from headway.wire.amqp1.values import Described, Symbol, malformed

Annotations = dict[Any, Any]


class Open(NamedTuple):
    container_id: str
    hostname: str | None = None
    max_frame_size: int | None = None
    channel_max: int | None = None
    idle_time_out: int | None = None
    outgoing_locales: Any = None
    incoming_locales: Any = None
    offered_capabilities: Any = None
    desired_capabilities: Any = None
    properties: Annotations | None = None


class Begin(NamedTuple):
    remote_channel: int | None
    next_outgoing_id: int
    incoming_window: int
    outgoing_window: int
    handle_max: int | None = None
    offered_capabilities: Any = None
    desired_capabilities: Any = None
    properties: Annotations | None = None


class Attach(NamedTuple):
    name: str
    handle: int
    role: bool
    """True: the client receives."""
    snd_settle_mode: int | None = None
    rcv_settle_mode: int | None = None
    source: Any = None
    target: Any = None
    unsettled: Annotations | None = None
    incomplete_unsettled: bool | None = None
    initial_delivery_count: int | None = None
    max_message_size: int | None = None
    offered_capabilities: Any = None
    desired_capabilities: Any = None
    properties: Annotations | None = None


class Flow(NamedTuple):
    next_incoming_id: int | None
    incoming_window: int
    next_outgoing_id: int
    outgoing_window: int
    handle: int | None = None
    delivery_count: int | None = None
    link_credit: int | None = None
    available: int | None = None
    drain: bool | None = None
    echo: bool | None = None
    properties: Annotations | None = None


class Transfer(NamedTuple):
    handle: int
    delivery_id: int | None = None
    delivery_tag: bytes | None = None
    message_format: int | None = None
    settled: bool | None = None
    more: bool | None = None
    rcv_settle_mode: int | None = None
    state: Any = None
    resume: bool | None = None
    aborted: bool | None = None
    batchable: bool | None = None


class Disposition(NamedTuple):
    role: bool
    first: int
    last: int | None = None
    settled: bool | None = None
    state: Any = None
    batchable: bool | None = None


class Detach(NamedTuple):
    handle: int
    closed: bool | None = None
    error: Any = None


class End(NamedTuple):
    error: Any = None


class Close(NamedTuple):
    error: Any = None


class SaslInit(NamedTuple):
    mechanism: str
    initial_response: bytes | None = None
    hostname: str | None = None


class SaslResponse(NamedTuple):
    response: bytes


class Source(NamedTuple):
    address: Any = None
    durable: int | None = None
    expiry_policy: str | None = None
    timeout: int | None = None
    dynamic: bool | None = None
    dynamic_node_properties: Annotations | None = None
    distribution_mode: str | None = None
    filter: Annotations | None = None
    default_outcome: Any = None
    outcomes: Any = None
    capabilities: Any = None


class Target(NamedTuple):
    address: Any = None
    durable: int | None = None
    expiry_policy: str | None = None
    timeout: int | None = None
    dynamic: bool | None = None
    dynamic_node_properties: Annotations | None = None
    capabilities: Any = None


class Coordinator(NamedTuple):
    capabilities: Any = None


class Error(NamedTuple):
    condition: str
    description: str | None = None
    info: Annotations | None = None


class Received(NamedTuple):
    section_number: int
    section_offset: int


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
_BINARY, _STRING, _SYMBOL, _UINT, _USHORT, _UBYTE, _ULONG, _FLAG, _MAP, _ANY, _LIST = range(11)
_TESTS: dict[int, tuple[str, Any]] = {
    _BINARY: ("binary", lambda it: isinstance(it, bytes)),
    _STRING: ("a string", lambda it: isinstance(it, str) and not isinstance(it, Symbol)),
    _SYMBOL: ("a symbol", lambda it: isinstance(it, Symbol)),
    _UINT: ("a uint", lambda it: type(it) is int and 0 <= it < 1 << 32),
    _USHORT: ("a ushort", lambda it: type(it) is int and 0 <= it < 1 << 16),
    _UBYTE: ("a ubyte", lambda it: type(it) is int and 0 <= it < 1 << 8),
    _ULONG: ("a ulong", lambda it: type(it) is int and it >= 0),
    _FLAG: ("a boolean", lambda it: isinstance(it, bool)),
    _MAP: ("a map", lambda it: isinstance(it, dict)),
    _ANY: ("anything", lambda it: True),
}  # fmt: skip
_WIDE = (_ANY, _ANY, _ANY)
_FIELDS: Mapping[int, tuple[type[Any], int, tuple[int, ...]]] = {
    0x10: (Open, 1, (_STRING, _STRING, _UINT, _USHORT, _UINT, _ANY, _ANY, _ANY, _ANY, _MAP)),
    0x11: (Begin, 4, (_USHORT, _UINT, _UINT, _UINT, _UINT, _ANY, _ANY, _MAP)),
    0x12: (Attach, 3, (
        _STRING, _UINT, _FLAG, _UBYTE, _UBYTE, _ANY, _ANY, _MAP, _FLAG, _UINT, _ULONG, _ANY, _ANY, _MAP,
    )),
    0x13: (Flow, 4, (_UINT, _UINT, _UINT, _UINT, _UINT, _UINT, _UINT, _UINT, _FLAG, _FLAG, _MAP)),
    0x14: (Transfer, 1, (_UINT, _UINT, _BINARY, _UINT, _FLAG, _FLAG, _UBYTE, _ANY, _FLAG, _FLAG, _FLAG)),
    0x15: (Disposition, 2, (_FLAG, _UINT, _UINT, _FLAG, _ANY, _FLAG)),
    0x16: (Detach, 1, (_UINT, _FLAG, _ANY)),
    0x17: (End, 0, (_ANY,)), 0x18: (Close, 0, (_ANY,)),
    0x1D: (Error, 1, (_SYMBOL, _STRING, _MAP)),
    0x23: (Received, 2, (_UINT, _ULONG)), 0x24: (Accepted, 0, ()), 0x25: (Rejected, 0, (_ANY,)),
    0x26: (Released, 0, ()), 0x27: (Modified, 0, (_FLAG, _FLAG, _MAP)),
    0x28: (Source, 0, (_ANY, _UINT, _SYMBOL, _UINT, _FLAG, _MAP, _SYMBOL, _MAP, *_WIDE)),
    0x29: (Target, 0, (_ANY, _UINT, _SYMBOL, _UINT, _FLAG, _MAP, _ANY)),
    0x30: (Coordinator, 0, (_ANY,)), 0x31: (Declare, 0, (_ANY,)), 0x32: (Discharge, 1, (_BINARY, _FLAG)),
    0x34: (TransactionalState, 1, (_BINARY, _ANY)),
    0x41: (SaslInit, 1, (_SYMBOL, _BINARY, _STRING)), 0x43: (SaslResponse, 1, (_BINARY,)),
}  # fmt: skip
"""By descriptor: the type, how many of its fields have to be there, and of what types they are."""
_NAMES = {
    "open:list": 0x10, "begin:list": 0x11, "attach:list": 0x12, "flow:list": 0x13, "transfer:list": 0x14,
    "disposition:list": 0x15, "detach:list": 0x16, "end:list": 0x17, "close:list": 0x18, "error:list": 0x1D,
    "received:list": 0x23, "accepted:list": 0x24, "rejected:list": 0x25, "released:list": 0x26, "modified:list": 0x27,
    "source:list": 0x28, "target:list": 0x29, "coordinator:list": 0x30, "declare:list": 0x31, "discharge:list": 0x32,
    "transactional-state:list": 0x34, "sasl-init:list": 0x41, "sasl-response:list": 0x43,
}  # fmt: skip
"""The descriptors in words, behind ``amqp:``."""
FRAMES = {*range(0x10, 0x19)}
"""The descriptors of performatives."""
SASL_FRAMES = {0x41, 0x43}
_OPTIONAL_FIRST = {Begin, Flow}
"""Their first field may be null, though fields behind it have to be there."""


def descriptor_of(said: object) -> int:
    """Returns a descriptor as a number; 0: it is none that is known here."""
    if isinstance(said, Symbol):
        return _NAMES.get(said.removeprefix("amqp:"), 0)
    return said if type(said) is int else 0


def build(value: object) -> Any:
    """Returns a described value as what it means; any other one unchanged. Raises ProtocolError."""
    if not isinstance(value, Described):
        return value
    known = _FIELDS.get(descriptor_of(value.descriptor))
    return value if known is None else _checked(known, value.value)


def _checked(known: tuple[type[Any], int, tuple[int, ...]], given: object) -> Any:
    kind, needed, types = known
    name = kind.__name__.lower()
    if not isinstance(given, list):
        raise malformed(f"has a {name} that is no list")
    if len(given) > len(types):
        raise malformed(f"has a {name} with {len(given)} fields (at most {len(types)})")
    values: list[Any] = []
    for number, (value, wanted) in enumerate(zip(given, types, strict=False)):
        if value is None:
            if number < needed and not (number == 0 and kind in _OPTIONAL_FIRST):
                raise malformed(f"has a {name} without its {kind._fields[number]}")
        elif wanted == _ANY:
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
