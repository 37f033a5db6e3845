"""One stream: a folder of segments, written by one thread and read by any.

Rules:
- ``append`` writes, ``sync`` confirms. Between the two a batch is held in memory, encoded.
- After an error of either the stream is ``broken``. Then batches are only held in memory, until ``mend`` has written
  everything that was not confirmed into a fresh segment. This costs time, but no data.
- A segment is begun when everything before it is on disk (see the package's rules), so only the last one has batches
  that are not confirmed.
- While a stream is *held*, none of its files is removed, so that another process can copy them (``hold``).
- Segments are freed one by one, the oldest first, and the folder is synced after each. So even if a power loss brings
  segments back, no number is missing in the middle, except for ranges that are recorded as freed (``free_between``).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from headway.store.journal.disk import Files, opened, write_all
from headway.store.journal.manifest import End, Manifest, listed_stream
from headway.store.journal.reading import ReadableStream
from headway.store.journal.recovery import RecoveryScan, accept_losses, recovery_scan, refuse, repair_stream
from headway.store.journal.segments import (
    FREED,
    LISTED_VERSION,
    Entry,
    Packed,
    SegmentHeader,
    SegmentIndex,
    batch,
    file_name,
    joined,
    pack_header,
    read_losses,
    write_losses,
)

SEGMENT_BYTES = 64 * 1024 * 1024


class Stream(ReadableStream):
    """To be opened before anything else. ``append`` to ``close`` are for one thread; reading is for all."""

    def __init__(
        self, files: Files, folder: Path, segment_bytes: int = SEGMENT_BYTES, manifest: Manifest | None = None
    ) -> None:
        """``manifest``: the journal's, where the stream lists its segments; None: nothing lists them."""
        super().__init__(files, folder)
        self._manifest = manifest
        self.broken: OSError | None = None
        """The error after which batches are only held in memory; None while all is well."""
        self._segment_bytes = segment_bytes
        self._token = 0
        self._current: SegmentIndex | None = None
        self._fd: int | None = None
        self._next_number = 1
        self._next_ordinal = 1
        self._synced = 0
        """The last batch that is known to be on disk."""
        self._roll = False
        self._folder_dirty = False
        """The removal of a file may not be on disk yet."""
        self._left_over: list[Path] = []
        """Files that a ``mend`` abandoned and could not remove."""
        self._holds = 0

    def open(
        self, *, repair: bool = False, checked: Callable[[int], None] | None = None, awaited: int | None = None
    ) -> list[str]:
        """Reads and checks the whole stream; ``checked`` is told how many bytes were checked. ``awaited``: the last
        batch of the stream that this one's commits may await. Returns a sentence for
        each thing that was cut or lost. Raises Corrupt for losses that no power loss explains; with ``repair`` it goes
        on with what can be read. Raises OSError."""
        found = self.survey(checked, awaited)
        if not repair:
            refuse(found.losses)
        accept_losses(self._files, self.folder, found)
        return self.resume(found)

    def survey(self, checked: Callable[[int], None] | None = None, awaited: int | None = None) -> RecoveryScan:
        """Does the first half of ``open``: reads and checks the whole stream, and changes nothing. Raises OSError."""
        listed = None if self._manifest is None else self._manifest.streams.get(self.folder.name)
        return recovery_scan(self._files, self.folder, checked, awaited, listed)

    def resume(self, found: RecoveryScan) -> list[str]:
        """Does the second half: goes on with what was found, of which all losses are accepted. Returns the sentences.
        Raises OSError."""
        self._files.make_folder(self.folder)
        said = repair_stream(self._files, self.folder, found)
        self._token = secrets.randbits(64) if found.token is None else found.token
        self._next_number = found.next_number
        self._next_ordinal = found.next_ordinal
        self._synced = found.next_number - 1
        self._roll = found.fresh
        for segment in found.segments:
            self._add_segment(segment)
        if found.segments:
            self._current = found.segments[-1]
            self._fd = self._files.open(self._current.path)
        if found.sealed:
            with suppress(OSError):  # of a full disk
                self._begin(self._next_number)
        return said

    def close(self) -> None:
        """Closes at once; unsynced batches may be lost."""
        self._close_fd()
        super().close()

    def check(self) -> None:
        """Asserts the stream's invariants. Goes through all segments."""
        super().check()
        kept = [packed.header.number for packed in self._kept]
        assert kept == list(range(self._synced + 1, self._next_number)), "what is not on disk is kept"

    # -- writing ----------------------------------------------------------------------------------------------------

    @property
    def unsynced_bytes(self) -> int:
        """Bytes of batches that are not known to be on disk; they are in memory too."""
        return self._kept_bytes

    @property
    def end(self) -> End | None:
        """The stream's end; None if there is no segment. All of it is on disk if nothing is unsynced."""
        last = self._current
        return None if last is None else End(last.end, self.last_number, self.last_sequence)

    @property
    def last_number(self) -> int:
        """The number of the last batch; 0 if there never was one."""
        return self._next_number - 1

    def packed(self, entries: Iterable[Entry], time_us: int, awaits: int = 0) -> list[Packed]:
        """Packs entries into the next batches. ``awaits``: they count only if another stream has this batch. Raises
        ValueError for entries that cannot be written (batch.pack)."""
        return batch.pack(
            entries,
            token=self._token,
            number=self._next_number,
            synced=self._synced,
            time_us=time_us,
            after=self.last_sequence,
            awaits=awaits,
        )

    def append(self, entries: Iterable[Entry], time_us: int) -> None:
        """Writes the entries. Their pieces must not be changed before they are on disk. Raises ValueError, and then
        nothing has happened; OSError, and then they are held in memory, as in a broken stream."""
        self.append_packed(self.packed(entries, time_us))

    def append_packed(self, batches: list[Packed]) -> None:
        """Writes what ``packed`` returned. Nothing may have been appended in between. Raises OSError."""
        if not batches:
            return
        self._next_number += len(batches)
        try:
            if self.broken is None:
                self._write(batches)
        except BaseException as error:  # in any case the numbers are taken, and the batches must not be lost
            self.put_off(error if isinstance(error, OSError) else OSError(f"interrupted: {error!r}"))
            raise
        finally:
            self._remember(batches)

    def _write(self, batches: list[Packed]) -> None:
        """Writes the batches of one commit, into one segment: a start may have to cut them together."""
        if self._manifest is not None:
            self._manifest.refresh()
        current = self._current
        if current is None or self._fd is None or self._roll or current.end > self._segment_bytes:
            self.sync()
            current, fd = self._begin(batches[0].header.number)
        else:
            fd = self._fd
        write_all(self._files, fd, [buffer for packed in batches for buffer in packed.buffers], current.end)

    def _remember(self, batches: Iterable[Packed]) -> None:
        """Adds batches to the index of the current segment. In a broken stream a fresh segment will have them."""
        for packed in batches:
            assert self._current is not None
            self._add(packed, self._current.end)

    def roll(self) -> None:
        """Makes the next batch begin a new segment."""
        self._roll = self._current is not None and len(self._current) > 0

    def sync(self) -> None:
        """Brings everything appended to disk. Raises OSError; a broken stream does so at once."""
        if self.broken is not None:
            raise self.broken
        if not self.unsynced_bytes or self._fd is None:
            return
        try:
            self._files.sync(self._fd)
        except OSError as error:
            self.put_off(error)
            raise
        self._synced = self._all_on_disk()

    def mend(self) -> None:
        """Repairs a broken stream: writes everything that is not known to be on disk into a fresh segment, and syncs
        it. Raises OSError; then the stream stays broken."""
        if self.broken is None:
            return
        try:
            fresh, fd = self._written_anew()
        except OSError as error:
            self.broken = error
            raise
        old = self._supersede(fresh)
        self._synced = self._next_number - 1
        self._roll = False
        self.broken = None
        self._make_current(fresh, fd)
        if old is not None:
            with suppress(OSError):
                self._cut_superseded(old)

    def _written_anew(self) -> tuple[SegmentIndex, int]:
        first = self._synced + 1
        last_sequence = self._current.last_sequence_before(first) if self._current else 0
        fresh, fd = self._create(first, last_sequence)
        try:
            kept = list(self._kept)
            write_all(self._files, fd, [buffer for packed in kept for buffer in packed.buffers], fresh.end)
            self._files.sync(fd)
            self._list(self._staying(), fresh)
        except OSError:
            self._abandon(fresh.path, fd)
            raise
        for packed in kept:
            fresh.add(fresh.end, packed.header, packed.count)
        return fresh, fd

    def _cut_superseded(self, old: SegmentIndex) -> None:
        """Frees the disk space of a superseded tail. Raises OSError; then the tail stays, and a start skips it."""
        if self._stays(old):
            with opened(self._files, old.path) as fd:
                self._files.truncate(fd, old.end)
            return
        with suppress(FileNotFoundError):  # the file may never have been made
            self._files.remove(old.path)
            self._folder_dirty = True
        self._drop(old)

    def put_off(self, error: OSError) -> None:
        """Breaks the stream: until ``mend`` its batches are only held in memory."""
        self.broken = error
        if self._current is None:  # there is no file yet, but the batches in memory need an index
            path = self.folder / file_name(0)
            self._current = SegmentIndex(path, self._header(0, self._synced + 1, 0))
            self._add_segment(self._current)

    # -- segments ---------------------------------------------------------------------------------------------------

    def _list(self, before: Sequence[SegmentIndex], last: SegmentIndex) -> None:
        """Writes down where the stream begins and ends: ``before`` are the segments before the last one. Raises
        OSError."""
        if self._manifest is not None:
            self._manifest.put(self.folder.name, listed_stream([*before, last][0].header, last.header))

    def _staying(self) -> list[SegmentIndex]:
        """Returns the segments that stay when all that is not known to be on disk is written elsewhere."""
        return [segment for segment in self._segments if segment is not self._current or self._stays(segment)]

    def _stays(self, current: SegmentIndex) -> bool:
        """True if a superseded segment keeps its file: it has batches that are on disk, or somebody copies it."""
        has_some = current.header.first_number <= self._synced and current.batches > 0
        return current.header.ordinal > 0 and (has_some or self._holds > 0)

    def _begin(self, first_number: int) -> tuple[SegmentIndex, int]:
        """Begins the next segment, for batches from this number on; all before it are on disk. Raises OSError."""
        segment, fd = self._create(first_number, self.last_sequence)
        try:
            self._list(self._segments, segment)
        except OSError:
            self._abandon(segment.path, fd)
            raise
        self._add_segment(segment)
        self._make_current(segment, fd)
        self._roll = False
        return segment, fd

    def _create(self, first_number: int, last_sequence: int) -> tuple[SegmentIndex, int]:
        """Creates a segment, with its header and its name on disk. Raises OSError, and then removes it if it can."""
        if self._manifest is not None:
            self._manifest.refresh()  # the header says that there is one
        header = self._header(self._next_ordinal, first_number, last_sequence)
        self._next_ordinal += 1
        path = self.folder / file_name(header.ordinal)
        fd = self._files.create(path)
        try:
            write_all(self._files, fd, [pack_header(header)], 0)
            self._files.sync(fd)
            self._files.sync_folder(self.folder)
        except OSError:
            self._abandon(path, fd)
            raise
        self._folder_dirty = False
        return SegmentIndex(path, header), fd

    def _header(self, ordinal: int, first_number: int, last_sequence: int) -> SegmentHeader:
        version = 1 if self._manifest is None else LISTED_VERSION
        return SegmentHeader(ordinal, self._token, first_number, last_sequence, self.folder.name, version)

    def _abandon(self, path: Path, fd: int) -> None:
        self._left_over.append(path)
        with suppress(OSError):
            self._files.close(fd)
        with suppress(OSError):
            self._remove_left_over()

    def _remove_left_over(self) -> None:
        """Removes abandoned files. While one exists, the segment that supersedes it must exist too. Raises OSError."""
        if self._left_over and self._manifest is not None:
            self._manifest.refresh()  # one that failed to be written may list one of them
        while self._left_over:
            with suppress(FileNotFoundError):
                self._files.remove(self._left_over[-1])
            self._folder_dirty = True
            self._left_over.pop()

    def _make_current(self, segment: SegmentIndex, fd: int) -> None:
        self._close_fd()
        self._current = segment
        self._fd = fd

    def _close_fd(self) -> None:
        if self._fd is not None:
            with suppress(OSError):
                self._files.close(self._fd)
            self._fd = None

    # -- freeing ----------------------------------------------------------------------------------------------------

    def hold(self) -> list[tuple[Path, int]]:
        """Removes no file until ``release``. Returns the segments, and how far each goes by now; all of that is on disk
        if nothing is unsynced."""
        self._holds += 1
        return [(segment.path, segment.end) for segment in self._segments]

    def release(self) -> None:
        self._holds -= 1

    def free_before(self, sequence: int) -> int:
        """Removes the oldest segments that end before this sequence, but never the current one. Returns the freed
        bytes. Raises OSError; segments that were removed by then stay removed."""
        return self._free(lambda oldest, _: oldest.own_last < sequence)

    def free_for_age(self, before_us: int, upto_sequence: int) -> int:
        """Does ``free_before(upto_sequence)``, but only for segments whose last batch is older than ``before_us``."""
        return self._free(
            lambda oldest, _: (
                oldest.own_last < upto_sequence and (oldest.last_time_us is None or oldest.last_time_us < before_us)
            )
        )

    def free_for_size(self, bytes_max: int, upto_sequence: int) -> int:
        """Does ``free_before(upto_sequence)``, but only until the stream is no larger than ``bytes_max``."""
        return self._free(lambda oldest, left: oldest.own_last < upto_sequence and left > bytes_max)

    def _free(self, may_go: Callable[[SegmentIndex, int], bool]) -> int:
        """``may_go`` gets a segment, and the bytes of the stream from it on."""
        going: list[SegmentIndex] = []
        left = self.bytes
        for oldest in () if self._holds else self._segments[:-1]:
            if not may_go(oldest, left):
                break
            going.append(oldest)
            left -= oldest.end
        if going:
            self._remove_left_over()
            self._list(self._segments[len(going) : -1], self._segments[-1])  # once for all, and before any is removed
        freed = 0
        for oldest in going:
            self._sync_folder()
            freed += self._remove(oldest)
        self._sync_folder()
        return freed

    def _remove(self, segment: SegmentIndex) -> int:
        """Returns the freed bytes. Raises OSError."""
        at = self._drop(segment)  # first: a reader that does not find the file looks again
        try:
            with suppress(FileNotFoundError):
                self._files.remove(segment.path)
        except OSError:
            self._put_back(segment, at)
            raise
        self._forget(segment)
        self._folder_dirty = True
        return segment.end

    def free_between(self, unwanted: Container[int], snapshots: Container[int]) -> int:
        """Removes segments between others that stay; never the oldest, nor the current one. A segment that begins with
        a sequence of ``snapshots`` repeats everything that is known at that point. One that also begins with a sequence
        of ``unwanted`` has no needed record before the next snapshot. Returns the freed bytes. Raises OSError."""
        segments = self._segments[1:]
        superseded = [
            (segment, (segment.header.first_number, following.header.first_number - 1))
            for segment, following in pairwise(segments)
            if segment.own_first in unwanted and segment.own_first in snapshots and following.own_first in snapshots
        ]  # fmt: skip
        if not superseded or self._holds:
            return 0
        self.sync()  # the snapshots that repeat the removed metadata are on disk
        self._remove_left_over()
        self._sync_folder()  # no segment before the oldest one can come back
        known = read_losses(self._files, self.folder, FREED)
        oldest = self._segments[0].header.first_number
        numbers = [pair for pair in known if pair[1] > oldest] + [numbers for _, numbers in superseded]
        write_losses(self._files, self.folder, joined(numbers), FREED)  # first, so that no start misses them
        freed = sum(self._remove(segment) for segment, _ in superseded)
        self._sync_folder()
        return freed

    def _sync_folder(self) -> None:
        if self._folder_dirty:
            self._files.sync_folder(self.folder)
            self._folder_dirty = False
