"""Recovery: finds what is on disk after a crash or damage, repairs it for a start, and verifies it for an operator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from headway.store.journal.disk import REAL, Files, Misplaced, opened, read_all, write_all
from headway.store.journal.manifest import (
    LOCK_NAME,
    MANIFEST_NAME,
    BadManifest,
    ListedStream,
    is_listed,
    is_stream_name,
    listed_stream,
    read_manifest,
)
from headway.store.journal.segments import (
    FREED,
    READ_BYTES,
    SEGMENT_HEADER_BYTES,
    BadBatch,
    BadHeader,
    BatchHeader,
    Corrupt,
    Numbers,
    Scan,
    SegmentBatch,
    SegmentHeader,
    SegmentIndex,
    SegmentReader,
    SegmentStats,
    file_name,
    is_accepted,
    joined,
    ordinal_of,
    pack_header,
    read_losses,
    summary_of,
    write_losses,
)

# -- recovery scan -----------------------------------------------------------------------------------------------------
#
# The recovery scan: reads a stream's folder and finds what is there and what is missing. Changes nothing.
#
# A power loss can cause two things, which are no damage:
# - a segment without a header on disk; nothing else was written to it then (*unfinished*);
# - an invalid tail of the last segment of which nothing was confirmed (*torn*).
#
# Damage to the end of the last segment looks the same. After a clean stop the manifest says where the stream ended, so
# a shorter one is a loss. After a kill nothing tells the two apart.
#
# Also torn is the last commit of a stream if a part of it is missing, here or in the stream that it awaits (batch.py).
# The broker was killed while it wrote it, and had confirmed nothing of it.
#
# Any other invalid part is a ``Loss``: data that had been on disk and is missing now. Whole batches (``synced``),
# segment headers (all numbers before the first are on disk) and the manifest tell what was confirmed. Losses that an
# earlier repair accepted (segment.py) are not reported again, nor are batches that were removed on purpose.


@dataclass
class Loss:
    """Data that had been on disk and cannot be read."""

    path: Path
    offset: int | None
    """None if the whole file, or folder, is missing."""
    bytes: int
    """The number of invalid bytes; 0 where the missing data may have been in another file."""
    what: str
    numbers: Numbers | None = None
    """Numbers of the missing batches; None if unknown, or if none are missing."""
    sequences: Numbers | None = None
    """Sequences between which entries may be missing; None if unknown, or if none are."""
    open_ended: bool = False
    """True if more batches may be missing after ``numbers``."""

    @property
    def about(self) -> str:
        """The loss in words, without its place."""
        parts = [self.what]
        if self.bytes:
            parts.append(f"{self.bytes} bytes cannot be read")
        if self.numbers:
            first, last = self.numbers
            parts.append(f"batch {first} is lost" if first == last else f"batches {first} to {last} are lost")
        if self.open_ended:
            parts.append("and any after these" if self.numbers else "its batches are lost, how many is not known")
        if self.sequences:
            first, last = self.sequences
            parts.append(f"with what there was of the sequences {first} to {last}")
        return ", ".join(parts)

    def __str__(self) -> str:
        return f"{self.path} {'is missing' if self.offset is None else f'at byte {self.offset}'}: {self.about}"


class Torn(NamedTuple):
    """The tail of the last segment that was being written when the power failed."""

    path: Path
    offset: int
    bytes: int
    what: str
    stopped: bool
    """True after a clean stop: the stream ended before these bytes."""

    def __str__(self) -> str:
        known = "had not been confirmed" if self.stopped else "are not known to have been confirmed"
        why = "" if self.stopped else "; a kill or a power failure leaves such an end, but so does damage"
        return (
            f"{self.path}: the last {self.bytes} bytes, from byte {self.offset}, {known} and are cut ({self.what}{why})"
        )


def misplaced(path: Path, error: Misplaced) -> Loss:
    return Loss(path, None, 0, error.strerror or str(error))


@dataclass
class RecoveryScan:
    token: int | None = None
    """The stream's token; None if it has no segment yet."""
    segments: list[SegmentIndex] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    """The sizes of their files, in the same order."""
    next_number: int = 1
    next_ordinal: int = 1
    """The ordinal for the next new segment."""
    confirmed: int = 0
    """The last batch that had been on disk."""
    losses: list[Loss] = field(default_factory=list)
    accepted: list[Numbers] = field(default_factory=list)
    freed: list[Numbers] = field(default_factory=list)
    """Batches that were removed between others."""
    torn: Torn | None = None
    unfinished: list[Path] = field(default_factory=list)
    unreadable: list[Path] = field(default_factory=list)
    """Segments that had a header, and in which neither a header nor a batch can be found; and what is in the place of a
    segment, or of the folder, without being one."""
    headless: list[Path] = field(default_factory=list)
    """Segments with a damaged header. In ``segments`` they have a reconstructed one."""
    awaited: int = 0
    """The last batch of another stream that a commit here awaits."""
    open_ended: bool = False
    """True if the end is lost and its numbers are unknown."""
    sealed: bool = False
    """True if a commit without its other part stays because its own part is known to be on disk. What says so may be
    cut, so the next segment is begun at once: its header says it again, for later starts."""
    fresh: bool = False
    """True if the next batch must begin a segment, because numbers are lost before it."""

    @property
    def listed(self) -> ListedStream | None:
        """The entry for the manifest; None if there is no segment."""
        return listed_stream(self.segments[0].header, self.segments[-1].header) if self.segments else None

    def give_up_to(self, number: int) -> None:
        """Counts the batches up to this number as lost, too. For an open end."""
        if number >= self.next_number:
            loss = next(loss for loss in self.losses if loss.open_ended)
            loss.numbers = (loss.numbers[0] if loss.numbers else self.next_number, number)
            self.next_number = number + 1


def recovery_scan(
    files: Files, folder: Path, checked: Callable[[int], None] | None = None, awaited: int | None = None,
    listed: ListedStream | None = None,
) -> RecoveryScan:  # fmt: skip
    """Scans a stream. ``checked`` is told how many bytes were checked. ``awaited``: the last batch of the stream that
    others await; None: it is not known, and taken to be there. ``listed``: the stream's entry in the manifest. Raises
    OSError."""
    found = RecoveryScan(accepted=joined(read_losses(files, folder)), freed=read_losses(files, folder, FREED))
    _Scanner(files, folder, found, checked or (lambda size: None), awaited, listed).run()
    return found


class _Scanner:
    def __init__(
        self, files: Files, folder: Path, found: RecoveryScan, checked: Callable[[int], None], awaited: int | None,
        listed: ListedStream | None,
    ) -> None:  # fmt: skip
        self.files = files
        self.listed = listed
        self.promised = 0
        """The last batch that the segments which are there must have, as the manifest says."""
        self.awaited = awaited
        self.number = self.commit = 0
        """The number of the last batch, and of the first of its commit."""
        self.continued, self.awaits = False, 0
        """Whether more is to come of that commit, and the batch that it awaits."""
        self.unmet: list[int] = []
        """The first batches of commits of which a part is missing, here or in the other stream."""
        self.checked = checked
        self.folder = folder
        self.found = found
        self.last_sequence = 0
        self.tail: Loss | None = None
        """Judges an unreadable end of the segment before, or of the last one. If the numbers go on in the next
        one it was superseded."""
        self.waiting: list[Loss] = []
        """Losses within the segment after which no sequence was seen yet."""

    def run(self) -> None:
        found, listed = self.found, self.listed
        headers = self._headers()
        ends_early = listed is not None and (not headers or headers[-1][1].ordinal < listed.last.ordinal)
        if listed is not None:
            found.next_ordinal = max(found.next_ordinal, listed.last.ordinal + 1)
            self.promised = listed.last.number - 1 if ends_early or listed.end is None else listed.end.number
        if headers:
            self._read_all(headers)
        if listed is not None and ends_early:
            self._miss_end(listed, any_left=bool(headers))
        found.awaited = self.awaits
        found.next_number = max(found.next_number, *(last + 1 for _, last in found.accepted), 1)

    def _read_all(self, headers: list[tuple[Path, SegmentHeader]]) -> None:
        found = self.found
        firsts = [header.first_number for _, header in headers]
        found.next_number = min(firsts)
        self.last_sequence = headers[0][1].last_sequence
        if self.listed is not None and headers[0][1].ordinal > self.listed.first.ordinal:
            first = self.listed.first
            numbers = (first.number, headers[0][1].first_number - 1)
            self._miss(first.ordinal, "it was the first segment", numbers, (first.sequence + 1, self.last_sequence))
        for at, (path, header) in enumerate(headers):
            self._read(path, header, min(firsts[at + 1 :], default=None))
        found.confirmed = max(found.confirmed, firsts[-1] - 1)

    # -- manifest ---------------------------------------------------------------------------------------------------

    def _miss_end(self, listed: ListedStream, *, any_left: bool) -> None:
        """Finds what is missing with the last segment, or with all of them."""
        found, end = self.found, listed.end
        missing = listed.last if any_left else listed.first
        what = "it was the last segment" if any_left else "no segment of the stream is left"
        first = max(found.next_number, missing.number) if any_left else missing.number
        last = listed.last.number - 1 if end is None else end.number
        sequences = (
            (self.last_sequence if any_left else missing.sequence) + 1,
            listed.last.sequence if end is None else end.sequence,
        )
        self._miss(missing.ordinal, what, (first, last), sequences, open_ended=end is None)
        found.next_number = max(found.next_number, listed.last.number, last + 1)
        found.confirmed = max(found.confirmed, found.next_number - 1)
        found.fresh = True

    def _miss(self, ordinal: int, what: str, numbers: Numbers, sequences: Numbers, *, open_ended: bool = False) -> None:
        """Adds the loss of a listed segment, unless nothing was in it."""
        found, path = self.found, self.folder / file_name(ordinal)
        loss = next((loss for loss in found.losses if loss.path == path), None)
        empty = numbers[1] < numbers[0]
        if loss is None:
            if (empty and not open_ended) or (not open_ended and is_accepted(found.accepted, numbers)):
                return
            loss = Loss(path, None, 0, what)
            found.losses.append(loss)
        loss.numbers = None if empty else numbers
        loss.sequences = sequences if sequences[0] <= sequences[1] else None
        loss.open_ended = found.open_ended = open_ended

    # -- headers ----------------------------------------------------------------------------------------------------

    def _headers(self) -> list[tuple[Path, SegmentHeader]]:
        """Returns the segments in order whose header is valid, or can be reconstructed."""
        known: list[tuple[Path, SegmentHeader]] = []
        damaged: list[tuple[Path, int, str]] = []
        try:
            names = sorted(self.files.names(self.folder))
        except FileNotFoundError:
            names = []
        except Misplaced as error:
            self._misplaced(self.folder, error)
            names = []
        ends = {self.listed.first.ordinal, self.listed.last.ordinal} if self.listed is not None else set()
        for name in names:
            ordinal = ordinal_of(name)
            if ordinal is None:
                continue
            self.found.next_ordinal = ordinal + 1
            path = self.folder / name
            try:
                reader = SegmentReader(self.files, path)
            except Misplaced as error:
                self._misplaced(path, error)
                continue
            with reader:
                try:
                    header = self._checked(reader.header(), ordinal)
                    known.append((path, header))
                except BadHeader as error:
                    if reader.size <= SEGMENT_HEADER_BYTES and ordinal in ends:
                        self.found.unreadable.append(path)
                        self.found.losses.append(Loss(path, 0, reader.size, str(error)))
                    elif reader.size <= SEGMENT_HEADER_BYTES:
                        self.found.unfinished.append(path)
                    else:
                        damaged.append((path, ordinal, str(error)))
        known += [guess for path, ordinal, why in damaged if (guess := self._guess(path, ordinal, why))]
        return sorted(known)

    def _misplaced(self, path: Path, error: Misplaced) -> None:
        self.found.unreadable.append(path)
        self.found.losses.append(misplaced(path, error))

    def _checked(self, header: SegmentHeader, ordinal: int) -> SegmentHeader:
        if header.name != self.folder.name or header.ordinal != ordinal:
            raise BadHeader(f"this is segment {header.ordinal} of the stream {header.name}")
        if self.found.token not in (None, header.token):
            raise BadHeader("this segment is of another stream of the same name")
        self.found.token = header.token
        return header

    def _guess(self, path: Path, ordinal: int, why: str) -> tuple[Path, SegmentHeader] | None:
        """Returns a header that fits the first whole batch of a segment without one."""
        with SegmentReader(self.files, path) as reader:
            size = reader.size
            try:
                batch = reader.batch_at(SEGMENT_HEADER_BYTES, self.found.token)
                self.found.token = batch.header.token
            except BadBatch:
                token = self.found.token
                first = None if token is None else reader.next_whole(SEGMENT_HEADER_BYTES, token, 1)
                if token is None or first is None:
                    self.found.unreadable.append(path)
                    self.found.losses.append(Loss(path, 0, size, f"{why}, and no batch can be found"))
                    return None
                batch = first
        header = SegmentHeader(ordinal, batch.header.token, batch.header.number, 0, self.folder.name)
        self.found.headless.append(path)
        self.found.losses.append(Loss(path, 0, SEGMENT_HEADER_BYTES, why))
        return path, header

    # -- batches ----------------------------------------------------------------------------------------------------

    def _read(self, path: Path, header: SegmentHeader, limit: int | None) -> None:
        """Reads all batches of a segment below ``limit``: the least first number of those behind it; None for the
        last."""
        found = self.found
        index = SegmentIndex(path, header._replace(last_sequence=max(header.last_sequence, self.last_sequence)))
        with SegmentReader(self.files, path) as reader:
            found.segments.append(index)
            found.sizes.append(reader.size)
            losses = self._before(path, header)
            losses += self._collect(reader, index, limit)
        self.checked(found.sizes[-1])
        self.waiting.clear()
        if limit is None:
            losses = self._judged(index, losses)
        else:
            index.thin()
        gone = found.accepted, found.freed
        found.losses += [
            loss for loss in losses if loss.numbers and not any(is_accepted(each, loss.numbers) for each in gone)
        ]  # fmt: skip
        self.last_sequence = index.last_sequence

    def _before(self, path: Path, header: SegmentHeader) -> list[Loss]:
        """Finds the batches missing between the last one so far and the first of this segment."""
        loss, self.tail = self.tail, None
        numbers = (self.found.next_number, header.first_number - 1)
        self.found.next_number = header.first_number
        if numbers[1] < numbers[0]:
            return []
        loss = loss or Loss(path, 0, 0, "the batches before this segment are missing")
        loss.numbers = numbers
        if header.last_sequence > self.last_sequence:
            loss.sequences = (self.last_sequence + 1, header.last_sequence)
        return [loss]

    def _collect(self, reader: SegmentReader, index: SegmentIndex, limit: int | None) -> list[Loss]:
        """Adds what is whole to the index. Returns what is lost between; the end of it is the ``tail``."""
        found = self.found
        losses: list[Loss] = []
        position = SEGMENT_HEADER_BYTES
        while True:
            scan = Scan(reader, position, index.header.token, found.next_number, limit)
            for batch in scan:
                self._saw(batch.header, index.last_sequence)
                index.add(batch.offset, batch.header, self._noted(batch))
            found.next_number = scan.number
            if scan.why is None:
                return losses
            later = reader.next_whole(scan.end, index.header.token, scan.number)
            if later is None or (limit is not None and later.header.number >= limit):
                self.tail = Loss(reader.path, scan.end, reader.size - scan.end, scan.why)
                return losses
            if later.header.number > scan.number:
                loss = Loss(reader.path, scan.end, later.offset - scan.end, scan.why)
                loss.numbers = (scan.number, later.header.number - 1)
                self.waiting.append(loss)
                losses.append(loss)
            position = later.offset
            found.next_number = later.header.number

    def _noted(self, found: SegmentBatch) -> int:
        """Notes to which commit the batch belongs. Returns the number of its sequences."""
        summary = summary_of(found.header, found.body)
        number = found.header.number
        if not self.continued or number != self.number + 1:
            if self.continued:
                self.unmet.append(self.commit)
            self.commit, self.awaits = number, summary.awaits
            if self.awaited is not None and self.awaits > self.awaited:
                self.unmet.append(number)
        self.number, self.continued = number, summary.continued
        return summary.count

    def _saw(self, header: BatchHeader, last_sequence: int) -> None:
        self.found.confirmed = max(self.found.confirmed, header.synced)
        if header.first_sequence:
            for loss in self.waiting:
                if last_sequence + 1 < header.first_sequence:
                    loss.sequences = (last_sequence + 1, header.first_sequence - 1)
            self.waiting.clear()

    def _judged(self, index: SegmentIndex, losses: list[Loss]) -> list[Loss]:
        """Returns the confirmed losses of the last segment. From the first unconfirmed one on, its tail is torn."""
        found, due = self.found, self.found.next_number
        # What a repair has given up had been on disk, as what the manifest promises.
        known = max(self.promised, *(last for first, last in found.accepted if first <= due <= last), 0)
        found.confirmed = max(found.confirmed, known)
        torn = self.tail
        for at, loss in enumerate(losses):
            if loss.numbers and loss.path == index.path and loss.numbers[0] > found.confirmed:
                torn = loss
                found.next_number = loss.numbers[0]
                index.cut(found.next_number)
                losses = losses[:at]
                break
        if found.next_number <= known:
            losses = [*losses, self._short(index, known)]
            torn = None
        if torn:
            self._tear(index, torn.offset or 0, torn.what)
        self._cut_partial_commit(index)
        return losses

    def _short(self, index: SegmentIndex, last: int) -> Loss:
        """Returns the loss of the last segment's end, up to this batch."""
        found, listed = self.found, self.listed
        loss = self.tail or Loss(index.path, index.end, 0, "the file ends here")
        loss.numbers = (found.next_number, last)
        if listed is not None and last == self.promised:
            end = listed.end if index.header.ordinal >= listed.last.ordinal else None
            sequence = listed.last.sequence if end is None else end.sequence
            if end is not None:
                loss.what += f"; it had {end.bytes} bytes when the broker stopped"
            if sequence > index.last_sequence:
                loss.sequences = (index.last_sequence + 1, sequence)
        found.next_number, found.fresh = last + 1, True
        return loss

    def _tear(self, index: SegmentIndex, offset: int, what: str) -> None:
        index.end = offset
        stopped = self.listed is not None and self.listed.end is not None
        self.found.torn = Torn(index.path, offset, self.found.sizes[-1] - offset, what, stopped)

    def _cut_partial_commit(self, index: SegmentIndex) -> None:
        """Cuts the first unconfirmed commit of which a part is missing, and what is behind it: there may be several
        if the awaited stream could not be written for a while. A commit is in one segment."""
        found, before = self.found, index.header.first_number - 1
        confirmed = max(found.confirmed, before)
        found.sealed = any(before < number <= confirmed for number in self.unmet)
        partial = [*self.unmet, self.commit] if self.continued else self.unmet
        number = next((number for number in partial if number > confirmed), found.next_number)
        if number < found.next_number:
            found.next_number = number
            index.cut(number)
            self._tear(index, index.end, "a part of its commit is missing")


# -- repair ------------------------------------------------------------------------------------------------------------
#
# Repairs a stream as its recovery scan found it, before it is written on.
#
# Rules:
# - Nothing is changed while there is a loss that was not accepted.
# - Batches that no sync confirmed are written again in place, and synced. The last process may have ended after a
# failed
#   sync; then the kernel may show clean pages that are not on disk.


UNREADABLE = ".unreadable"
"""Ends the name of a segment that was set aside, or of what was in the place of a file."""


def set_aside(files: Files, path: Path) -> None:
    """Renames what is in a file's place. Raises OSError."""
    files.rename(path, path.with_name(path.name + UNREADABLE))


def refuse(losses: Sequence[Loss]) -> None:
    """Raises Corrupt if there is a loss."""
    if losses:
        raise Corrupt(losses[0].path, losses[0].offset, losses[0].about)


def repair_stream(files: Files, folder: Path, found: RecoveryScan) -> list[str]:
    """Makes the folder what the scan says is there, on disk; losses are accepted already. Returns a sentence for each
    thing that was cut or lost. Raises OSError."""
    said = [str(loss) for loss in found.losses]
    for path in found.unfinished:
        files.remove(path)
    if found.segments:
        _finish_tail(files, found.segments[-1], found)
    if found.torn:
        said.append(str(found.torn))
    files.sync_folder(folder)
    return said


def accept_losses(files: Files, folder: Path, found: RecoveryScan) -> None:
    """Records the losses, so that the next start accepts them. Raises OSError."""
    if not found.losses:
        return
    for path in found.unreadable:
        set_aside(files, path)
    files.make_folder(folder)
    for segment in found.segments:
        if segment.path in found.headless:
            with opened(files, segment.path) as fd:
                write_all(files, fd, [pack_header(segment.header)], 0)
                files.sync(fd)
    numbers = [loss.numbers for loss in found.losses if loss.numbers]
    if numbers:
        write_losses(files, folder, found.accepted + numbers)


def _finish_tail(files: Files, last: SegmentIndex, found: RecoveryScan) -> None:
    at = last.position_of(found.confirmed + 1)
    start = last.entry(at).offset if at < len(last) else last.end
    if at == 0:
        start = 0  # not even the header is known to be on disk
    with opened(files, last.path) as fd:
        if found.torn:
            files.truncate(fd, last.end)
        while start < last.end:
            data = read_all(files, fd, min(READ_BYTES, last.end - start), start)
            write_all(files, fd, [data], start)
            start += len(data)
        files.sync(fd)


# -- verify ------------------------------------------------------------------------------------------------------------
#
# Verifying: looks through a journal, or one of its streams, and changes nothing. A broker may be at work on it.


TRIES_MAX = 10


@dataclass(frozen=True)
class StreamReport:
    """The report on one stream."""

    folder: Path
    segments: list[SegmentStats]
    """The oldest first. ``bytes`` is the size of the file."""
    losses: list[str]
    """Losses: data that had been on disk and cannot be read; a broker starts on these only with ``--repair``."""
    notes: list[str]
    """Remains of a power loss, and losses accepted before. The next start handles them by itself."""

    @property
    def good(self) -> bool:
        return not self.losses


def verify(folder: Path, files: Files = REAL) -> StreamReport:
    """Reads a stream's folder from end to end, and what the manifest beside it says. Raises OSError."""
    listed, _ = manifest_scan(files, folder.parent, ())
    found = recovery_scan(files, folder, listed=listed.get(folder.name))
    segments = [segment.stats(size) for segment, size in zip(found.segments, found.sizes, strict=True)]
    notes = [f"{path}: was never finished and has nothing in it" for path in found.unfinished]
    if found.torn:
        notes.append(str(found.torn))
    notes += [f"{folder}: batches {first} to {last} were given up by a repair" for first, last in found.accepted]
    return StreamReport(folder, segments, [str(loss) for loss in found.losses], notes)


def streams_of(folder: Path, files: Files = REAL) -> list[Path]:
    """Returns the folders of a journal that have streams. Raises OSError."""
    found = []
    for name in filter(is_stream_name, sorted(files.names(folder))):
        try:
            inside = files.names(folder / name)
        except (Misplaced, FileNotFoundError):
            continue
        if any(ordinal_of(file) is not None for file in inside):
            found.append(folder / name)
    return found


def manifest_scan(files: Files, folder: Path, folders: Sequence[Path]) -> tuple[dict[str, ListedStream], list[Loss]]:
    """Returns what the manifest of a journal lists, and its own damage. ``folders``: those of streams, one of which may
    show that there must be a manifest. Raises OSError."""
    path, unknown = folder / MANIFEST_NAME, "so whether segments are missing is not known"
    try:
        listed = read_manifest(files, folder)
    except Misplaced as error:
        return {}, [Loss(path, None, 0, f"{error.strerror}, {unknown}")]
    except BadManifest as error:
        return {}, [Loss(path, 0, files.size(path), f"{error}, {unknown}")]
    if listed is None and any(is_listed(files, stream) for stream in folders):
        return {}, [Loss(path, None, 0, f"it lists the segments of all streams, {unknown}")]
    return listed or {}, []


def check(folder: Path, files: Files = REAL, expected: Collection[str] = ()) -> list[StreamReport]:
    """Verifies every stream, and the manifest and the lock: if they are damaged, there is a report without segments.
    ``expected``: names of streams to look for although nothing may tell that they exist. Raises OSError."""
    streams = {path.name: path for path in streams_of(folder, files)}
    listed, losses = manifest_scan(files, folder, list(streams.values()))
    losses = _lock_scan(files, folder / LOCK_NAME) + losses
    reports = [StreamReport(folder, [], [str(loss) for loss in losses], [])] if losses else []
    names = sorted({*streams, *listed, *expected})
    return reports + [checked(folder / name, files) for name in names]


def _lock_scan(files: Files, path: Path) -> list[Loss]:
    try:
        with suppress(FileNotFoundError), opened(files, path, read_only=True):
            pass
    except Misplaced as error:
        return [misplaced(path, error)]
    return []


def checked(folder: Path, files: Files) -> StreamReport:
    """Verifies one stream. A batch that is being written looks damaged for a moment, so a loss is reported only if it
    is found twice. Raises OSError."""
    before: StreamReport | None = None
    for tries_left in reversed(range(TRIES_MAX)):
        try:
            report = verify(folder, files)
        except FileNotFoundError:
            if not tries_left:
                raise
            continue
        if report.good or (before is not None and report.losses == before.losses):
            return report
        before = report
    assert before is not None
    return before
