"""Dialects' common part: a dialect (core/message/record.py) derives from it, and says where it differs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import sub
from struct import Struct
from typing import Any, Protocol

import msgspec

from headway.core.message import (
    DELETE,
    DELTA,
    EVENT,
    OUT_OF_FOCUS,
    TOLD,
    EncodedRun,
    Gap,
    Properties,
    Record,
    Run,
    says_delete,
)
from headway.wire.common import CommonProperties

# -- columns -----------------------------------------------------------------------------------------------------------
#
# Columns: scans frames of one size, many at a time. These are the innermost loops of all scanners: they find how far
# frames with one header reach, and where their parts are.
#
# A few frames are compared one by one. For many frames with a short header, the bytes at one position of all headers
# form a *column*: a slice whose step is the frame size. C compares a column, in a nanosecond per byte of a frame's
# header. Long headers are cut out with one call of ``struct`` and counted, in 50 ns per frame.
#
# Where parts that are equal stand between others that are not, whole frames are cut, each part a column
# (``same_rows``).


form_of = lru_cache(256)(Struct)
"""Returns the form of this text; those used lately are known."""

KNOWN_MAX = 4096
"""A form of more parts takes much memory, so it is not kept."""
FEW = 16
"""Frames compared one by one before a method is tried that takes time to set up."""
COLUMNS_MAX = 32
"""Longer headers are cut out."""
PIECES_MAX, PIECES_A_UNIT = 1024, 2
"""Pieces of a run, each of frames of one size: as many as it may have, and that take the time of one small item."""


def pieces_work(ends: Sequence[int]) -> int:
    """Returns the work of finding a run of frames with these ends, besides the first. They are a range if all frames
    have one size; else it may be as many pieces as frames."""
    return 0 if type(ends) is range else min(len(ends), PIECES_MAX) // PIECES_A_UNIT


def same_frames(data: bytes, header: bytes, pos: int, size: int, trailer: bytes = b"") -> int:
    """Returns the end of the frames of ``size`` bytes from ``pos`` on that begin with ``header`` and end with
    ``trailer``."""
    startswith = data.startswith
    last = len(data) - size
    few = min(last, pos + FEW * size)
    if trailer:
        while pos <= few and startswith(header, pos) and data.endswith(trailer, pos, pos + size):
            pos += size
    else:
        while pos <= few and startswith(header, pos):
            pos += size
    if pos <= few or pos > last:
        return pos
    if len(header) > COLUMNS_MAX:
        return _same_pieces(data, header, pos, size, trailer)
    count = same_column(data, header, pos, size, (len(data) - pos) // size)
    if trailer:
        count = same_column(data, trailer, pos + size - len(trailer), size, count)
    return pos + count * size


def same_column(data: bytes, wanted: bytes, pos: int, size: int, count: int) -> int:
    """Counts the frames in a row, of ``count``, that have these bytes; ``pos`` is where the first frame has them."""
    for at in range(len(wanted) - 1, -1, -1):  # topics mostly differ at their ends
        byte = wanted[at : at + 1]
        column = data[pos + at : pos + count * size : size]
        if column != byte * count:
            count -= len(column.lstrip(byte))
            if not count:
                break
    return count


def _same_pieces(data: bytes, header: bytes, pos: int, size: int, trailer: bytes) -> int:
    """Cuts out headers in growing portions, so that few are cut out in vain."""
    left = (len(data) - pos) // size
    tried = FEW
    while left:
        tried = min(2 * tried, left)
        headers = equal_pieces(data, pos, len(header), size, tried)
        same = headers.count(header)
        if same != tried:
            same = next(index for index, other in enumerate(headers) if other != header)
        same = same_column(data, trailer, pos + size - len(trailer), size, same)
        pos += same * size
        left -= same
        if same != tried:
            break
    return pos


def same_rows(
    form: Struct, data: bytes, pos: int, most: int, wanted: dict[int, object]
) -> Iterator[list[tuple[Any, ...]]]:
    """Cuts up to ``most`` frames of one size, whose parts ``form`` gives, in growing portions. Yields the columns of
    each. They end before the first frame that does not have what is ``wanted`` in these columns."""
    view, tried = memoryview(data), FEW
    while most:
        tried = min(2 * tried, most)
        columns = list(zip(*form.iter_unpack(view[pos : pos + tried * form.size]), strict=True))
        same = tried
        for at, value in wanted.items():
            if columns[at].count(value) != tried:
                same = min(same, next(index for index, other in enumerate(columns[at]) if other != value))
        if same < tried:
            if same:
                yield [column[:same] for column in columns]
            return
        yield columns
        most -= tried
        pos += tried * form.size


def equal_pieces(data: bytes, start: int, size: int, step: int, count: int) -> tuple[bytes, ...]:
    """Returns ``count`` pieces of ``size`` bytes, each ``step`` bytes after the one before. It takes less than half the
    time of as many slices."""
    if not count:
        return ()
    return _form(f"{size}s{step - size}x", count - 1, f"{size}s").unpack_from(data, start)


def equal_pairs(data: bytes, sizes: tuple[int, int], count: int) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """Splits ``data``, which is ``count`` pairs of pieces of these sizes, into all first and all second pieces."""
    one, other = sizes
    pieces = _form(f"{one}s{other}s", count).unpack_from(data)
    return pieces[::2], pieces[1::2]


def _form(part: str, count: int, last: str = "") -> Struct:
    """Returns the form of ``count`` equal parts, and a last one. Reads of one size bring the same ones again and again.
    To make one takes as long as to use it."""
    return _known_form(part, count, last) if count <= KNOWN_MAX else Struct(part * count + last)


@lru_cache(32)
def _known_form(part: str, count: int, last: str) -> Struct:
    return Struct(part * count + last)


# -- cut ---------------------------------------------------------------------------------------------------------------
#
# Cuts: what an envelope (``core/message/record.py``) makes of a batch once, for all consumers who get it.


class Cut:
    """Records that were split. ``pieces``: the bytes of each delivery that are equal for all consumers, or the part of
    them that differs between records. ``size``: the bytes of a delivery besides a consumer's own, if all have one size;
    else 0, and they are the pieces' sizes."""

    __slots__ = ("_ends", "_last", "pieces", "size")

    def __init__(self, pieces: Sequence[bytes], size: int = 0) -> None:
        self.pieces = pieces
        self.size = size
        self._ends: list[int] | None = None
        """Ends of the pieces, computed when needed."""
        self._last: tuple[Hashable, bytes] | None = None

    def written(self, whom: Hashable) -> bytes | None:
        """Returns the last bytes that were written, if they were written for the same arguments; else None."""
        return self._last[1] if self._last is not None and self._last[0] == whom else None

    def keep(self, whom: Hashable, frames: bytes) -> bytes:
        """Remembers bytes and the arguments that they were written for. Returns the bytes."""
        self._last = whom, frames
        return frames

    def count_within(self, count: int, bytes_max: int) -> int:
        """Returns how many of the first ``count`` deliveries stand before one whose piece is larger than this."""
        return next((at for at, piece in enumerate(self.pieces[:count]) if len(piece) > bytes_max), count)

    def ends(self, start: int, stop: int, own_bytes: int) -> list[int]:
        """Returns the end of each delivery of these records, of which ``own_bytes`` are the consumer's own."""
        if self.size:
            size = own_bytes + self.size
            return list(range(size, (stop - start) * size + 1, size))
        if self._ends is None:
            self._ends = list(accumulate(map(len, self.pieces)))
        before = self._ends[start - 1] if start else 0
        return [end - before + own_bytes * number for number, end in enumerate(self._ends[start:stop], 1)]


# -- numbered ----------------------------------------------------------------------------------------------------------
#
# Numbered properties: those of one sender's messages, which differ by the number that ends their ids, and by time.
#
# Clients of JMS give each message an id and a time, so no two messages say the same of themselves; but what differs are
# two numbers. A *numbering* is the rest. ``Numbered`` is what a run of such messages has in the place of one properties
# for all (``Run.own``): the numbering, and two lists of numbers. Codecs that know it (``Dialect.reads_own``) write such
# a run without an object per record.


class Numbering(Protocol):
    """The part that is equal, in the form of queues (codec.py)."""

    common: CommonProperties
    """The properties without the id and the time."""
    stem: str
    """The id, up to its number."""
    written: dict[Hashable, Any]
    """The parts that other protocols have written of it, by their forms; they keep its size in bounds."""

    def fits(self, time_ms: int) -> bool:
        """Tells whether messages of this time have properties of this form."""

    def properties(self, number: int, time_ms: int) -> Properties:
        """Returns the properties of one message. The time fits."""

    def natives(self, numbers: Sequence[int], times_ms: Sequence[int]) -> Sequence[bytes]:
        """Returns the properties of many messages as queues keep them."""

    def read(self, native: bytes) -> tuple[int, int] | None:
        """Returns the number and the time, from properties as queues keep them; None: these are not of this form."""

    def spans(self, native: bytes) -> tuple[tuple[int, int], ...]:
        """Returns the starts and ends of what differs in these properties, which are of this form."""

    def values(self, columns: Sequence[Sequence[bytes]]) -> tuple[Sequence[int], Sequence[int]] | None:
        """Returns the numbers and the times of many messages, from what stands at these spans, for each span one
        sequence. None: some are not of this form."""


class Numbered:
    """The properties of the records of a run, one by one. ``times_ms``: 0 where there is no time. ``written``: what a
    codec has written of the run and needs again for the next lane."""

    __slots__ = ("numbering", "numbers", "times_ms", "written")

    def __init__(self, numbering: Numbering, numbers: Sequence[int], times_ms: Sequence[int]) -> None:
        self.numbering = numbering
        self.numbers = numbers
        self.times_ms = times_ms
        self.written: dict[Hashable, Any] = {}

    def of(self, index: int) -> Properties:
        return self.numbering.properties(self.numbers[index], self.times_ms[index])

    def natives(self) -> Sequence[bytes]:
        return self.numbering.natives(self.numbers, self.times_ms)

    def part(self, start: int, stop: int) -> Numbered:
        return Numbered(self.numbering, self.numbers[start:stop], self.times_ms[start:stop])


# -- dialect -----------------------------------------------------------------------------------------------------------


class PlainDialect(msgspec.Struct, frozen=True):
    """Frames that are written anew from each run, whole, and the same for every consumer."""

    @property
    def form(self) -> object:
        """No run has come in these bytes."""
        return None

    @property
    def id_bytes(self) -> int:
        """There is no delivery id in a frame."""
        return 0

    @property
    def bare(self) -> bool:
        return False

    @property
    def reads_own(self) -> bool:
        """No run is written with properties that differ between its records."""
        return False

    def redelivered(self, frame: bytes) -> bytes:
        """A record looks the same when it comes again."""
        return frame

    def writes_as(self, other: object, first: int) -> bool:
        """That is not known."""
        return False


class BareDialect(PlainDialect, frozen=True):
    """Records without what is each consumer's own: an envelope puts it around them."""

    @property
    def bare(self) -> bool:
        return True

    def encode(self, run: Run, first_sequence: int) -> EncodedRun:
        raise NotImplementedError

    def encode_record(
        self, record: Record, delivery_id: int, *, now: float, retain: bool = False, redelivered: bool = False,
        gap: Gap | None = None,
    ) -> bytes:  # fmt: skip
        """Returns the record as it is in a lane, without the parts of a delivery."""
        frame = self.encode(record.run(), record.sequence).data
        return frame if gap is None else self.with_gap(frame, gap)

    def with_gap(self, frame: bytes, gap: Gap) -> bytes:
        raise NotImplementedError


def event_of(properties: Properties) -> str:
    """Returns what a record is that is no ordinary one: a delete, a delta, or out of focus; empty: it is one."""
    if says_delete(properties):
        return DELETE
    said = properties.user_value(EVENT) if properties.user else None
    return said if said in (DELTA, OUT_OF_FOCUS) else ""


def mark_of(said: Properties) -> tuple[str, dict[str, str | int]] | None:
    """Returns the name of a mark of the broker's own, and what it tells; None: a record that says this is no mark."""
    name = said.user_value(EVENT)
    if not name:
        return None
    return name, {key.removeprefix(TOLD): int(value) if value.isdecimal() else value for key, value in said.user[1:]}


def encode_by_size(run: Run, lead_of: Callable[[int], bytes]) -> EncodedRun:
    """Puts a lead before each payload, which depends on no more than its size: it is made once per size. If all
    payloads have one size, there is no work per record."""
    data, ends, bodies = run.data, run.ends, run.bodies
    count, size = len(ends), ends[0] - bodies[0]
    if isinstance(ends, range) and isinstance(bodies, range):
        pieces, lead = equal_pieces(data, bodies[0], size, ends.step, count), lead_of(size)
        whole = len(lead) + size
        return EncodedRun(lead.join((b"", *pieces)), range(whole, count * whole + 1, whole))
    sizes = list(map(sub, ends, bodies))
    leads = {size: lead_of(size) for size in set(sizes)}
    wholes = {size: len(lead) + size for size, lead in leads.items()}
    parts = [b""] * (2 * count)
    parts[::2] = map(leads.__getitem__, sizes)
    parts[1::2] = [data[body:end] for body, end in zip(bodies, ends, strict=True)]
    return EncodedRun(b"".join(parts), list(accumulate(map(wholes.__getitem__, sizes))))


def gap_facts(prefix: str, gap: Gap) -> dict[str, object]:
    """Returns what a consumer is told of skipped records, by names that begin so."""
    return {
        f"{prefix}gap-records": gap.records, f"{prefix}gap-reason": str(gap.reason),
        f"{prefix}gap-first": gap.first_sequence, f"{prefix}gap-last": gap.last_sequence,
    }  # fmt: skip
