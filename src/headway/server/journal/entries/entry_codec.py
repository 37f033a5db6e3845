"""The codec of the journal's entries: runs, metadata and positions as bytes, and back.

A run is written as it came: a header with what all its records share, the positions at which records end and begin, and
the run's own bytes, which are not copied. Metadata is msgpack. Times are the wall clock's, because the monotonic clock
begins anew with each boot.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Container, Iterable, Iterator, Sequence
from math import inf
from typing import Any, NamedTuple

import msgspec

from headway.core.base import ConfigError, RecentCache
from headway.core.clients import DurableQueueTerms, SessionTerms, SubscriptionTerms, WriterBatch
from headway.core.consumer import QueueTerms, SubscribeRequest, SubscriptionOptions
from headway.core.log import CommittedPosition, JournaledRun, MetadataChange
from headway.core.message import NO_PROPERTIES, Dialect, Properties, Run
from headway.core.routing import Binding, Destination, Exchange, frozen
from headway.server.protocols import DIALECTS, QUEUES
from headway.store.journal import Entry, StoredEntry

RUN, METADATA, POSITIONS, SNAPSHOT_METADATA, SNAPSHOT_POSITIONS, SNAPSHOT_MARK = 1, 2, 3, 4, 5, 6
"""The kinds of entries. A snapshot has all metadata and positions, at the beginning of a segment."""
METADATA_KINDS = frozenset((METADATA, POSITIONS, SNAPSHOT_METADATA, SNAPSHOT_POSITIONS))
MERGED_BYTES = 64 * 1024
HEADERS_BYTES_MAX = 4_000_000
"""The limit of each of the two caches of headers."""
HEADER_BYTES = 200
"""A header of AMQP besides its characters."""
_PREFIX = struct.Struct("<IIIdB")
"""Bytes of the header, records, bytes before the data, when they expire (0: never), and flags: which positions are
ranges, and whether a packet id follows them."""
_RANGE = struct.Struct("<II")
_PACKET_ID = struct.Struct("<H")
_ENDS_RANGE, _BODIES_RANGE, _HAS_PACKET_ID = 1, 2, 4


class RunHeader(NamedTuple):
    topic: str
    exchange: str
    form: Any
    qos: int
    retain: bool
    properties: Properties | None
    publisher: str


_encode = msgspec.msgpack.Encoder().encode
_decode_header = msgspec.msgpack.Decoder(RunHeader).decode


# -- runs -------------------------------------------------------------------------------------------------------------


def _header_bytes(head: bytes, properties: Properties | None) -> int:
    """Returns the memory of a header, as bytes and as objects: a character may take four bytes."""
    return 1000 + 5 * len(head) + (properties.size if properties is not None else 0)


_encoded: RecentCache[tuple[Any, ...], bytes] = RecentCache(
    lambda fields: _encode(RunHeader(*fields)), HEADERS_BYTES_MAX, lambda fields, head: _header_bytes(head, fields[5])
)
"""Headers by their fields; neighbouring runs mostly have equal ones."""


def encode_run(journaled: JournaledRun, wall_offset_s: float) -> Entry:
    """Encodes a run. ``wall_offset_s`` is the wall clock less the monotonic clock."""
    run = journaled.run
    properties = None if run.properties is NO_PROPERTIES else run.properties
    head = _encoded[run.topic, run.exchange, run.form, run.qos, run.retain, properties, journaled.publisher]
    expires = 0.0 if run.expires_s == inf else run.expires_s + wall_offset_s
    ends, bodies = _positions(run.ends), _positions(run.bodies)
    flags = isinstance(run.ends, range) * _ENDS_RANGE | isinstance(run.bodies, range) * _BODIES_RANGE
    packet_id = b""
    if run.packet_id:
        flags, packet_id = flags | _HAS_PACKET_ID, _PACKET_ID.pack(run.packet_id)
    size = _PREFIX.size + len(head) + len(ends) + len(bodies) + len(packet_id)
    front = _PREFIX.pack(len(head), len(run), size, expires, flags)
    return Entry(RUN, journaled.sequence, len(run), (b"".join((front, head, ends, bodies, packet_id)), run.data))


def _positions(positions: Sequence[int]) -> bytes:
    if isinstance(positions, range):
        return _RANGE.pack(positions.start, positions.step)
    return array("I", positions).tobytes()


class DecodedRun(NamedTuple):
    run: Run
    sequence: int
    publisher: str


class _RawRun(NamedTuple):
    """The parts of a run's entry, not decoded."""

    head: bytes
    expires: float
    ends: Sequence[int]
    bodies: Sequence[int]
    data: bytes


def _read_header(head: bytes) -> tuple[RunHeader, Properties, dict[str, object] | None]:
    read = _decode_header(head)
    properties = read.properties or NO_PROPERTIES
    headers = QUEUES.read_headers(properties.native) or None if properties.native else None
    form = tuple(read.form) if isinstance(read.form, list) else read.form
    return read._replace(form=form), properties, headers


_headers: RecentCache[bytes, tuple[RunHeader, Properties, dict[str, object] | None]] = RecentCache(
    _read_header, HEADERS_BYTES_MAX,
    lambda head, found: _header_bytes(head, found[1]) + (HEADER_BYTES * len(found[2]) if found[2] else 0),
)  # fmt: skip


def _split(data: memoryview | bytes) -> _RawRun:
    view = memoryview(data)
    head_bytes, count, size, expires, flags = _PREFIX.unpack_from(view)
    at = _PREFIX.size + head_bytes
    head = bytes(view[_PREFIX.size : at])
    found: list[Sequence[int]] = []
    for is_range in (flags & _ENDS_RANGE, flags & _BODIES_RANGE):
        if is_range:
            start, step = _RANGE.unpack_from(view, at)
            found.append(range(start, start + step * count, step) if step else [start] * count)
            at += _RANGE.size
        else:
            numbers = array("I")
            numbers.frombytes(view[at : at + 4 * count])
            found.append(numbers)
            at += 4 * count
    return _RawRun(head, expires, found[0], found[1], bytes(view[size:]))


def _build_run(
    head: bytes, expires: float, ends: Sequence[int], bodies: Sequence[int], data: bytes, wall_offset_s: float
) -> tuple[Run, str]:
    read, properties, headers = _headers[head]
    run = Run(read.topic, data, ends, bodies, read.form, read.qos, read.retain, properties,
              expires - wall_offset_s if expires else inf, read.exchange, headers)  # fmt: skip
    run.journaled = True
    return run, read.publisher


def decode_packet_id(stored: StoredEntry) -> tuple[str, int] | None:
    """Returns the client and the packet id of a run that is an exactly-once publish; None for all other runs."""
    view = memoryview(stored.data)
    if not view[_PREFIX.size - 1] & _HAS_PACKET_ID:
        return None
    head_bytes, _, size, _, _ = _PREFIX.unpack_from(view)
    head, _, _ = _headers[bytes(view[_PREFIX.size : _PREFIX.size + head_bytes])]
    (packet_id,) = _PACKET_ID.unpack_from(view, size - _PACKET_ID.size)
    return head.publisher, packet_id


def decode_run(stored: StoredEntry, wall_offset_s: float) -> DecodedRun:
    head, expires, ends, bodies, data = _split(stored.data)
    run, publisher = _build_run(head, expires, ends, bodies, data, wall_offset_s)
    return DecodedRun(run, stored.sequence, publisher)


def decode_runs(batch: Iterable[StoredEntry], wall_offset_s: float, apart: Container[int] = ()) -> Iterator[DecodedRun]:
    """Yields the runs of a batch. Neighbours with the same header are merged, so that many small runs cost little. Runs
    are not merged across a sequence of ``apart``, because metadata changed there."""
    waiting: list[_RawRun] = []
    first = following = size = 0
    for stored in batch:
        if stored.kind != RUN:
            continue
        written = _split(stored.data)
        alike = waiting and stored.sequence == following and written[:2] == waiting[0][:2] and size < MERGED_BYTES
        if waiting and (not alike or following - 1 in apart):
            yield _merged(waiting, first, wall_offset_s)
            waiting = []
        if not waiting:
            first, size = stored.sequence, 0
        waiting.append(written)
        following = stored.sequence + stored.count
        size += len(written.data)
    if waiting:
        yield _merged(waiting, first, wall_offset_s)


def _merged(parts: list[_RawRun], sequence: int, wall_offset_s: float) -> DecodedRun:
    head, expires, ends, bodies, data = parts[0]
    if len(parts) > 1:
        ends, bodies, at = list(ends), list(bodies), len(data)
        for part in parts[1:]:
            ends += [end + at for end in part.ends]
            bodies += [body + at for body in part.bodies]
            at += len(part.data)
        data = b"".join(part.data for part in parts)
    run, publisher = _build_run(head, expires, ends, bodies, data, wall_offset_s)
    return DecodedRun(run, sequence, publisher)


# -- metadata ---------------------------------------------------------------------------------------------------------


class _StoredRequest(msgspec.Struct):
    """A ``SubscribeRequest`` whose dialects are not decoded."""

    filter: str
    dialect: Any
    shared_dialect: Any = None
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    send_retained: str = "always"
    options: SubscriptionOptions = SubscriptionOptions()
    name: Any = None
    envelope: None = None
    polling: bool = False


class _RawMetadata(NamedTuple):
    what: str
    name: Any
    terms: Any


_decode_raw = msgspec.msgpack.Decoder(_RawMetadata).decode


def encode_metadata(change: MetadataChange, wall_offset_s: float) -> Entry:
    name, terms = change.name, change.terms
    if isinstance(name, Binding):
        name = (name.source, *name.destination, name.key, _table(name.arguments))
    if isinstance(terms, Exchange):
        terms = (terms.name, terms.kind, terms.durable, terms.auto_delete, terms.internal, terms.alternate,
                 _table(terms.arguments))  # fmt: skip
    elif isinstance(terms, SessionTerms) and terms.gone_s is not None:
        terms = terms._replace(gone_s=terms.gone_s + wall_offset_s)
    elif isinstance(terms, WriterBatch):
        terms = terms._replace(time_s=terms.time_s + wall_offset_s)
    return Entry(METADATA, change.sequence, 0, (_encode((change.what, name, terms)),))


def decode_metadata(stored: StoredEntry, wall_offset_s: float) -> MetadataChange:
    what, name, terms = _decode_raw(stored.data)
    match what:
        case "binding":
            name = Binding(name[0], Destination(name[1], name[2]), name[3], _arguments(name[4]))
        case "exchange" if terms is not None:
            terms = Exchange(terms[0], terms[1], durable=terms[2], auto_delete=terms[3], internal=terms[4],
                             alternate=terms[5], arguments=_arguments(terms[6]))  # fmt: skip
        case "deleted" | "arrived" | "flight":
            name, terms = tuple(name), tuple(terms) if isinstance(terms, list) else terms
        case "batch" if terms is not None:
            number, parts, sequence, time_s = terms
            terms = WriterBatch(number, tuple(parts), sequence, time_s - wall_offset_s)
        case "session" if terms is not None:
            terms = msgspec.convert(terms, SessionTerms)
            if terms.gone_s is not None:
                terms = terms._replace(gone_s=terms.gone_s - wall_offset_s)
        case "subscription" if terms is not None:
            asked = msgspec.convert(terms[1], _StoredRequest)
            asked.dialect, asked.shared_dialect = _dialect(asked.dialect), _dialect(asked.shared_dialect)
            request = SubscribeRequest(**msgspec.structs.asdict(asked))
            terms = SubscriptionTerms(terms[0], request, terms[2])
        case "queue" if terms is not None:
            terms = DurableQueueTerms(terms[0], terms[1], msgspec.convert(terms[2], QueueTerms))
    return MetadataChange(stored.sequence, what, name, terms)


def _dialect(raw: Any) -> Dialect | None:
    """Decodes a dialect. Raises ConfigError if the protocol that wrote it is not installed."""
    if raw is None:
        return None
    tag = raw.get("dialect")
    if tag not in DIALECTS:
        raise ConfigError(
            f"journal: a subscription has the dialect {tag!r}, which no protocol of this Headway knows "
            f"(known are {', '.join(map(repr, DIALECTS))}): start the release that wrote the journal, or choose "
            "another journal.path"
        )
    return msgspec.convert(raw, DIALECTS[tag])


def _table(arguments: tuple[tuple[str, object], ...]) -> bytes:
    return QUEUES.write_table(dict(arguments))


def _arguments(raw: bytes) -> tuple[tuple[str, object], ...]:
    return frozen(QUEUES.read_table(raw))


# -- positions --------------------------------------------------------------------------------------------------------


def encode_positions(positions: Sequence[CommittedPosition], sequence: int, kind: int = POSITIONS) -> Entry:
    numbers = array("Q")
    for position in positions:
        numbers.extend((position.number, position.upto, position.unsent, len(position.settled), *position.settled))
    return Entry(kind, sequence, 0, (numbers.tobytes(),))


def decode_positions(stored: StoredEntry) -> Iterator[CommittedPosition]:
    numbers = array("Q")
    numbers.frombytes(bytes(stored.data))
    at = 0
    while at < len(numbers):
        number, upto, unsent, count = numbers[at : at + 4]
        yield CommittedPosition(number, upto, unsent, tuple(numbers[at + 4 : at + 4 + count]))
        at += 4 + count
