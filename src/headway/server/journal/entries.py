"""Entries: their bytes, and the readers of runs: of recorded topics, and of chunks that are only in the journal."""

from __future__ import annotations

import errno
import re
import struct
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Container, Generator, Iterable, Iterator, Sequence
from heapq import merge
from itertools import chain
from math import inf
from operator import le
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from headway.core.base import ConfigError, Reason, RecentCache
from headway.core.clients import DurableQueueTerms, SessionTerms, SubscriptionTerms, WriterBatch
from headway.core.consumer import ArchiveLag, SubscribeRequest, SubscriptionOptions
from headway.core.log import Chunk, CommittedPosition, JournaledRun, MetadataChange
from headway.core.message import (
    MAX_TOPIC_BYTES,
    NO_PROPERTIES,
    SCAN_MAX,
    Dialect,
    Properties,
    Record,
    Run,
    covers,
    matcher,
    overlaps,
)
from headway.core.routing import Binding, Destination, Exchange, frozen, part_of
from headway.server.protocols import DIALECTS, QUEUES
from headway.store.journal import Corrupt, Entry, ReadableStream, StoredEntry, Stream
from headway.store.staged import is_name

# -- entry codec -------------------------------------------------------------------------------------------------------
#
# The codec of the journal's entries: runs, metadata and positions as bytes, and back.
#
# A run is written as it came: a header with what all its records share, the positions at which records end and begin,
# and the run's own bytes, which are not copied. Metadata is msgpack. Times are the wall clock's, because the monotonic
# clock begins anew with each boot.
#
# What is decoded is checked, so that all code behind can rely on it: a checksum only says that an entry is as it was
# written, perhaps by another release, or by one with a bug. Decoders raise any exception for an entry that is *odd*. A
# start sets it aside (recovery.py); readers of records leave it out.


RUN, METADATA, POSITIONS, SNAPSHOT_METADATA, SNAPSHOT_POSITIONS, SNAPSHOT_MARK = 1, 2, 3, 4, 5, 6
"""The kinds of entries. A snapshot has all metadata and positions, at the beginning of a segment."""
METADATA_KINDS = frozenset((METADATA, POSITIONS, SNAPSHOT_METADATA, SNAPSHOT_POSITIONS))
KINDS = {
    RUN: "records", METADATA: "a change", POSITIONS: "positions", SNAPSHOT_METADATA: "a change in a snapshot",
    SNAPSHOT_POSITIONS: "positions in a snapshot", SNAPSHOT_MARK: "the mark of a snapshot",
}  # fmt: skip
MERGED_BYTES = 64 * 1024
HEADERS_BYTES_MAX = 4_000_000
"""The limit of each of the two caches of headers."""
HEADER_BYTES = 200
"""A header of AMQP besides its characters."""
NUMBER_MAX = 2**62
"""No sequence and no number of an object is larger. A larger one would leave no room for those to come."""
_PREFIX = struct.Struct("<IIIdB")
"""Bytes of the header, records, bytes before the data, when they expire (0: never), and flags: which positions are
ranges. Earlier releases wrote a packet id behind the positions of some runs (flag 4); it is passed over."""
_RANGE = struct.Struct("<II")
_ENDS_RANGE, _BODIES_RANGE = 1, 2


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
    size = _PREFIX.size + len(head) + len(ends) + len(bodies)
    front = _PREFIX.pack(len(head), len(run), size, expires, flags)
    return Entry(RUN, journaled.sequence, len(run), (b"".join((front, head, ends, bodies)), run.data))


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
    if not 0 <= read.qos <= 2:
        raise ValueError(f"a qos of {read.qos}")
    if len(read.topic.encode()) > MAX_TOPIC_BYTES:
        raise ValueError(f"a topic of more than {MAX_TOPIC_BYTES} bytes")
    properties.check()
    headers = QUEUES.read_headers(properties.native) or None if properties.native else None
    form = tuple(read.form) if isinstance(read.form, list) else read.form
    return read._replace(form=form), properties, headers


_headers: RecentCache[bytes, tuple[RunHeader, Properties, dict[str, object] | None]] = RecentCache(
    _read_header, HEADERS_BYTES_MAX,
    lambda head, found: _header_bytes(head, found[1]) + (HEADER_BYTES * len(found[2]) if found[2] else 0),
)  # fmt: skip


def _split(stored: StoredEntry) -> _RawRun:
    view = memoryview(stored.data)
    head_bytes, count, size, expires, flags = _PREFIX.unpack_from(view)
    at = _PREFIX.size + head_bytes
    if count != stored.count or not count:
        raise ValueError(f"a run of {count} records where {stored.count} are")
    if not expires >= 0:
        raise ValueError(f"it expires at {expires}")
    head = bytes(view[_PREFIX.size : at])
    found: list[Sequence[int]] = []
    for is_range in (flags & _ENDS_RANGE, flags & _BODIES_RANGE):
        if is_range:
            start, step = _RANGE.unpack_from(view, at)
            found.append(range(start, start + step * count, step))
            at += _RANGE.size
        else:
            numbers = array("I")
            numbers.frombytes(view[at : at + 4 * count])
            found.append(numbers)
            at += 4 * count
    data = bytes(view[size:])
    ends, bodies = found
    _check_places(ends, bodies, count, len(data))
    return _RawRun(head, expires, ends, bodies, data)


def _check_places(ends: Sequence[int], bodies: Sequence[int], count: int, size: int) -> None:
    """Raises ValueError unless all payloads lie in the data, one behind the other."""
    if len(ends) != count or len(bodies) != count or ends[-1] != size:
        raise ValueError(f"the records do not end where their {size} bytes do")
    if isinstance(ends, range) and isinstance(bodies, range):
        sound = bodies[0] <= ends[0] and bodies[-1] <= ends[-1] and (
            count == 1 or (ends[0] <= bodies[1] and ends[-2] <= bodies[-1])
        )  # fmt: skip
    else:
        sound = all(map(le, bodies, ends)) and all(map(le, ends, bodies[1:]))
    if not sound:
        raise ValueError("the records lie across each other")


def _build_run(
    head: bytes, expires: float, ends: Sequence[int], bodies: Sequence[int], data: bytes, wall_offset_s: float
) -> tuple[Run, str]:
    read, properties, headers = _headers[head]
    run = Run(read.topic, data, ends, bodies, read.form, read.qos, read.retain, properties,
              expires - wall_offset_s if expires else inf, read.exchange, headers)  # fmt: skip
    run.journaled = True
    return run, read.publisher


def decode_run(stored: StoredEntry, wall_offset_s: float) -> DecodedRun:
    head, expires, ends, bodies, data = _split(stored)
    run, publisher = _build_run(head, expires, ends, bodies, data, wall_offset_s)
    return DecodedRun(run, stored.sequence, publisher)


def leave_out(stored: StoredEntry, error: Exception) -> None:
    """Leaves an odd entry out, for who reads records while the broker runs: the start has set it aside, and said so."""


def decode_runs(
    batch: Iterable[StoredEntry], wall_offset_s: float, apart: Container[int] = (),
    odd: Callable[[StoredEntry, Exception], None] = leave_out,
) -> Iterator[DecodedRun]:  # fmt: skip
    """Yields the runs of a batch. Neighbours with the same header are merged, so that many small runs cost little. Runs
    are not merged across a sequence of ``apart``, because metadata changed there. ``odd`` gets the runs that cannot be
    decoded."""
    waiting: list[_RawRun] = []
    first = following = size = 0
    for stored in batch:
        if stored.kind != RUN:
            continue
        try:
            written = _split(stored)
            if stored.sequence < following:
                raise ValueError(f"sequence {stored.sequence} where {following} is due")
            if not waiting or written.head != waiting[0].head:
                _headers[written.head]  # raises if it is odd
        except Exception as error:  # noqa: BLE001  whatever it is, the other entries are read
            odd(stored, error)
            continue
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


class _RawBinding(NamedTuple):
    source: str
    kind: Literal["queue", "exchange"]
    destination: str
    key: str
    arguments: bytes


class _RawExchange(NamedTuple):
    name: str
    kind: Literal["direct", "fanout", "topic", "headers"]
    durable: bool
    auto_delete: bool
    internal: bool
    alternate: str | None
    arguments: bytes


class _RawSubscription(NamedTuple):
    client: str
    request: _StoredRequest
    position_number: int


class _RawNotice(NamedTuple):
    reason: Reason
    text: str


class _Form(NamedTuple):
    """The types of a kind's name and terms, as they are written."""

    name: Any
    terms: Any


_FORMS = {
    "reserved": _Form(None, int),
    "session": _Form(str, SessionTerms | None),
    "subscription": _Form(int, _RawSubscription | None),
    "queue": _Form(str, DurableQueueTerms | None),
    "exchange": _Form(str, _RawExchange | None),
    "binding": _Form(_RawBinding, Literal[True] | None),
    "arrived": _Form(tuple[str, int], Literal[True] | None),
    "flight": _Form(tuple[str, int], tuple[int, int, bool] | None),
    "deleted": _Form(tuple[str, str], _RawNotice | None),
    "batch": _Form(str, WriterBatch | None),
}


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
    form = _FORMS.get(what)
    if form is None:
        raise ValueError(f"a change of {what!r}, which this release does not know")
    name, terms = msgspec.convert(name, form.name), msgspec.convert(terms, form.terms)
    numbers = [stored.sequence]
    match terms:
        case int():
            numbers.append(terms)
        case SessionTerms(gone_s=float() | int() as gone_s):
            terms = terms._replace(gone_s=gone_s - wall_offset_s)
        case _RawSubscription(client, asked, number):
            numbers += (name, number)
            asked.dialect, asked.shared_dialect = _dialect(asked.dialect), _dialect(asked.shared_dialect)
            asked.name = tuple(asked.name) if isinstance(asked.name, list) else asked.name
            hash(asked.name)
            terms = SubscriptionTerms(client, SubscribeRequest(**msgspec.structs.asdict(asked)), number)
        case DurableQueueTerms():
            numbers.append(terms.position_number)
        case _RawExchange():
            terms = Exchange(terms[0], terms[1], durable=terms[2], auto_delete=terms[3], internal=terms[4],
                             alternate=terms[5], arguments=_arguments(terms[6]))  # fmt: skip
        case WriterBatch(number, parts, sequence, time_s):
            numbers += (number, sequence)
            terms = terms._replace(time_s=time_s - wall_offset_s)
            if not all(map(is_name, (name, *parts))):
                raise ValueError("a writer or a part that cannot have this name")
        case _RawNotice():
            terms = tuple(terms)
    if isinstance(name, _RawBinding):
        name = Binding(name[0], Destination(name[1], name[2]), name[3], _arguments(name[4]))
    if not all(0 <= number <= NUMBER_MAX for number in numbers):
        raise ValueError(f"a number of {max(numbers)}")
    if _has_nan(terms):
        raise ValueError("a number that is none (NaN)")
    return MetadataChange(stored.sequence, what, name, terms)


def _has_nan(terms: object) -> bool:
    """Tells whether a time is no number: a timer with such a time would put all others into disorder."""
    match terms:
        case SubscriptionTerms(request=SubscribeRequest(options=options)):
            fields = msgspec.structs.astuple(options)
        case DurableQueueTerms(terms=queue_terms):
            fields = msgspec.structs.astuple(queue_terms)
        case SessionTerms():
            fields = tuple(terms)
        case WriterBatch(time_s=time_s, user=user):
            fields = (time_s, None if user is None else user.until_s)
        case _:
            return False
    return any(field != field for field in fields if isinstance(field, float))


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


def decode_positions(stored: StoredEntry) -> list[CommittedPosition]:
    numbers = array("Q")
    numbers.frombytes(bytes(stored.data))
    found: list[CommittedPosition] = []
    at = 0
    while at < len(numbers):
        number, upto, unsent, count = numbers[at : at + 4]
        settled = tuple(numbers[at + 4 : at + 4 + count])
        if len(settled) != count or max(number, upto, unsent, *settled) > NUMBER_MAX:
            raise ValueError(f"position {number} ends too early, or has a number that is too large")
        if any(first > last for first, last in zip(settled[::2], settled[1::2], strict=True)):
            raise ValueError(f"position {number} has a range that ends before it begins")
        found.append(CommittedPosition(number, upto, unsent, settled))
        at += 4 + count
    return found


# -- archive -----------------------------------------------------------------------------------------------------------
#
# The archive: reads recorded topics from any offset or time.
#
# Each ``[[topic]]`` with ``keep`` has a stream of its own in the journal. An offset is the broker-wide sequence. It
# goes up within a topic, is never used twice, and orders topics among each other; so one offset is enough for a
# wildcard.


PREFIX = "topic-"
BYTES_A_LOOK = 1024
"""Reading so many bytes counts as much work as looking at one record."""
LOOKS_A_RUN = 8
"""Reading and decoding a run counts as much as looking at so many records: most runs have one record."""


def stream_name(filter: str) -> str:
    """Returns the name of a recorded topic's stream: readable and unique."""
    words = re.sub(r"[^a-z0-9]+", "-", filter.lower()).strip("-")[:40]
    return f"{PREFIX}{words}-{zlib.crc32(filter.encode()):08x}"


def first_offset_at(streams: Sequence[ReadableStream], time_us: int) -> int:
    """Returns the first offset at or after a time, to the precision of a commit; the one after all others if there is
    none."""
    last = max((stream.last_sequence for stream in streams), default=0)
    found = ((stream.sequence_at(time_us), stream.last_sequence) for stream in streams)
    return min((first for first, its_last in found if first <= its_last), default=last + 1)


class PendingRun(NamedTuple):
    run: Run
    sequence: int
    """The sequence of the run's first record."""
    before: int
    """The number of records of the topic before it, as ``RecordedTopic.count`` counts them."""


class RecordedTopic:
    __slots__ = ("count", "filter", "pending", "stream")

    def __init__(self, filter: str, stream: Stream) -> None:
        self.filter = filter
        self.stream = stream
        self.pending: deque[PendingRun] = deque()
        """Runs that are published and not in the stream yet."""
        self.count = stream.count
        """The number of records in the stream (``ReadableStream.count``), and of those that are pending."""

    def published(self, run: JournaledRun) -> None:
        self.pending.append(PendingRun(run.run, run.sequence, self.count))
        self.count += len(run.run)

    def passed(self, offset: int, in_stream: int) -> int:
        """Returns the number of records before an offset. ``in_stream``: how many of those are in the stream."""
        at = bisect_left(self.pending, offset, key=lambda one: one.sequence) - 1
        if at < 0:
            return in_stream
        last = self.pending[at]
        return last.before + min(len(last.run), offset - last.sequence)


class Archive:
    def __init__(self, wall_offset: Callable[[], float]) -> None:
        """``wall_offset``: the wall clock less the monotonic one, in seconds, as it is now."""
        self._wall_offset = wall_offset
        self.untaken: Callable[[], Sequence[JournaledRun]] = tuple
        """Returns the runs of this turn, which are published and not pending yet."""
        self.recorded: dict[str, RecordedTopic] = {}
        """The recorded topics by the name of their stream, in the order of the configuration."""
        self._tests: list[tuple[Callable[[str], object], str]] = []

    @property
    def wall_offset_s(self) -> float:
        return self._wall_offset()

    def add(self, filter: str, stream: Stream) -> None:
        name = stream_name(filter)
        self.recorded[name] = RecordedTopic(filter, stream)
        self._tests.append((matcher(filter), name))

    def stream_of(self, topic: str) -> str:
        """Returns the name of the stream with a topic's records; empty: the topic is not recorded."""
        return next((name for matches, name in self._tests if matches(topic)), "")

    def _of(self, filter: str) -> list[RecordedTopic]:
        return [recorded for recorded in self.recorded.values() if overlaps(recorded.filter, filter)]

    # -- offsets ----------------------------------------------------------------------------------------------------

    def earliest(self, filter: str) -> int | None:
        """Returns the first offset from which on some recorded topic still has all; None: the filter's topics are not
        recorded."""
        return min((recorded.stream.freed_upto + 1 for recorded in self._of(filter)), default=None)

    def complete(self, filter: str) -> bool:
        """Returns whether every topic that the filter matches is recorded."""
        return any(covers(recorded.filter, filter) for recorded in self._of(filter))

    def lag(self, filter: str, offset: int) -> ArchiveLag:
        """Returns the lag of a reader at an offset, over all recorded topics that overlap the filter."""
        last, records, size, oldest_us = 0, 0, 0, None
        for recorded in self._of(filter):
            pending = recorded.pending[-1] if recorded.pending else None
            pending_last = pending.sequence + len(pending.run) - 1 if pending is not None else 0
            last = max(last, recorded.stream.last_sequence, pending_last)
            behind = recorded.stream.behind(offset)
            records += recorded.count - recorded.passed(offset, behind.passed)
            size += behind.bytes
            if behind.time_us is not None:
                oldest_us = behind.time_us if oldest_us is None else min(oldest_us, behind.time_us)
        return ArchiveLag(last, records, size, inf if oldest_us is None else oldest_us / 1e6 - self.wall_offset_s)

    def before(self, filter: str, time_s: float) -> int:
        """Returns the last offset before a time (wall clock), with the precision of a commit."""
        return first_offset_at([one.stream for one in self._of(filter)], int(time_s * 1e6)) - 1

    # -- reading ----------------------------------------------------------------------------------------------------

    def read(
        self, filter: str, after: int, upto: int, accepts: Callable[[Record], bool], gone: Callable[[int, int], None],
        *, held: bool = False,
    ) -> Generator[Record | None, None, None]:  # fmt: skip
        """Yields the accepted records with ``after`` < offset <= ``upto``, one at a time, read from disk on demand; the
        source of a backfill. Yields None whenever it has looked at many. Calls ``gone`` with the first and last offset
        of what was freed, also while it reads; ``held``: not of what is freed by now. Raises OSError."""
        return self._read(self.runs(filter, after, upto, gone, held=held), matcher(filter), after, upto, accepts)

    def _read(
        self, runs: Iterator[tuple[Run, int, float]], matches: Callable[[str], object], after: int, upto: int,
        accepts: Callable[[Record], bool],
    ) -> Generator[Record | None, None, None]:  # fmt: skip
        looks = 0
        for run, first, time_s in runs:
            looks += LOOKS_A_RUN + len(run.data) // BYTES_A_LOOK
            if matches(run.topic):
                for index in range(max(0, after + 1 - first), min(len(run), upto + 1 - first)):
                    record = run.record(index, first, time_s)
                    looks += 1
                    if accepts(record):
                        yield record
                    elif looks >= SCAN_MAX:
                        looks = 0
                        yield None
            if looks >= SCAN_MAX:
                looks = 0
                yield None

    def runs(
        self, filter: str, after: int, upto: int, gone: Callable[[int, int], None] = lambda first, last: None,
        *, held: bool = False,
    ) -> Iterator[tuple[Run, int, float]]:  # fmt: skip
        """Yields the runs of recorded topics that overlap the filter, with their first offset and their time. The first
        and the last run may have records outside of the range. ``gone`` is told of each offset once, whatever number
        of streams it is freed in; ``held``: not of those that are freed by now."""
        told = after

        def tell(first: int, last: int) -> None:
            nonlocal told
            if last > told:
                gone(max(first, told + 1), last)
                told = last

        begins = [(one, max(after, one.stream.freed_upto) if held else after) for one in self._of(filter)]
        return merge(*(self._runs(one, begin, upto, tell) for one, begin in begins), key=lambda found: found[1])

    def _runs(
        self, recorded: RecordedTopic, after: int, upto: int, gone: Callable[[int, int], None]
    ) -> Iterator[tuple[Run, int, float]]:
        def passed(first: int, last: int) -> None:
            """Offsets without a record belong to other topics, or their records are freed."""
            if first <= (freed := min(last, recorded.stream.freed_upto)):
                gone(first, freed)

        at, looked_from = after + 1, [0, 0]
        while at <= upto and looked_from[-2:] != [at, at]:  # twice: a commit may come between
            looked_from.append(at)
            try:
                for time_us, batch in recorded.stream.read(at, upto):
                    for run, first, _ in decode_runs(batch, self.wall_offset_s):
                        if first + len(run) > at:
                            passed(at, first - 1)
                            at = first + len(run)
                            yield run, first, time_us / 1e6 - self.wall_offset_s
            except Corrupt as error:
                raise OSError(str(error)) from error
            # Runs that are not in the stream yet are pending, or of this turn: who comes in it reads before the commit.
            # Offsets that are in none of them belong to other topics.
            fresh = (one for one in self.untaken() if one.stream == stream_name(recorded.filter))
            waiting = chain[PendingRun | JournaledRun](recorded.pending, fresh)
            pending = next((one for one in waiting if one.sequence + len(one.run) > at), None)
            if pending is None or pending.sequence > upto:
                break
            if recorded.stream.last_sequence < pending.sequence:
                passed(at, pending.sequence - 1)
                yield pending.run, pending.sequence, 0.0
                at = pending.sequence + len(pending.run)
        passed(at, upto)


# -- chunk cache -------------------------------------------------------------------------------------------------------
#
# The chunk cache: reads chunks whose bytes are only in the journal.
#
# The journal has records as they were published; a lane has them encoded for sending. So a chunk that is read back is
# encoded again in its lane's dialect. The result has the same bytes as before, since the encoding does not depend on
# the time. The cache keeps a few chunks in memory, because one consumer reads a chunk in many pieces.


CHUNKS_MAX = 32


class JournalChunk:
    """A ``SpillHandle`` to a chunk in the journal. ``fd`` is -1: no file has the chunk's bytes as they are sent."""

    fd = -1
    offset = 0
    disk_bytes = 0
    __slots__ = ("_cache", "_chunk", "_dialect")

    def __init__(self, chunk_cache: ChunkCache, chunk: Chunk, dialect: Dialect) -> None:
        self._cache = chunk_cache
        self._chunk = chunk
        chunk_cache.unloaded[chunk] = chunk.sequence_of(0)
        self._dialect = dialect

    def read(self, start: int, stop: int) -> bytes:
        """Raises OSError."""
        return self._cache.data(self._chunk, self._dialect)[start:stop]

    def release(self) -> None:
        self._cache.forget(self._chunk)


class Clock(Protocol):
    @property
    def wall_offset_s(self) -> float:
        """The wall clock less the monotonic one, in seconds."""


class ChunkCache:
    def __init__(self, streams: Collection[ReadableStream], clock: Clock) -> None:
        """``streams``: the streams in which records of chunks may be."""
        self._streams = streams
        self._clock = clock
        self.unloaded: dict[Chunk, int] = {}
        """The chunks whose bytes are only in the journal, and the first sequence of each."""
        self._made: OrderedDict[Chunk, bytes] = OrderedDict()
        self._found: list[DecodedRun] = []
        """The runs of the last batch that was read."""
        self._firsts: list[int] = []

    def data(self, chunk: Chunk, dialect: Dialect) -> bytes:
        data = self._made.get(chunk)
        if data is None:
            data = self._made[chunk] = self._make(chunk, dialect)
            if len(self._made) > CHUNKS_MAX:
                self._made.popitem(last=False)
        self._made.move_to_end(chunk)
        return data

    def forget(self, chunk: Chunk) -> None:
        self.unloaded.pop(chunk, None)
        self._made.pop(chunk, None)

    def _make(self, chunk: Chunk, dialect: Dialect) -> bytes:
        parts: list[bytes] = []
        stops = [*chunk.run_first[1:], len(chunk)]
        for first, stop, sequence in zip(chunk.run_first, stops, chunk.run_sequence, strict=True):
            left = stop - first
            while left:
                run, run_sequence = self._run_with(sequence)
                at = sequence - run_sequence
                part = part_of(run, at, min(len(run), at + left))
                parts.append(dialect.encode(part, sequence).data)
                sequence += len(part)
                left -= len(part)
        data = b"".join(parts)
        if len(data) != chunk.ends[-1]:
            raise OSError(errno.EIO, f"the journal has {len(data)} bytes for {chunk.ends[-1]} of a lane")
        return data

    def _run_with(self, sequence: int) -> tuple[Run, int]:
        found = self._look(sequence)
        if found is not None:
            return found
        for stream in self._streams:
            try:
                batch = stream.batch_with(sequence)
            except Corrupt as error:
                raise OSError(errno.EIO, str(error)) from error
            self._found = list(decode_runs(batch or (), self._clock.wall_offset_s))
            self._firsts = [read.sequence for read in self._found]
            found = self._look(sequence)
            if found is not None:
                return found
        raise OSError(errno.EIO, f"record {sequence} is not in the journal any more")

    def _look(self, sequence: int) -> tuple[Run, int] | None:
        at = bisect_right(self._firsts, sequence) - 1
        if at < 0 or sequence >= self._firsts[at] + len(self._found[at].run):
            return None
        return self._found[at].run, self._firsts[at]
