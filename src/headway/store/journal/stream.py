"""One stream: a folder of segments, written by one thread and read by any.

Rules:
- ``append`` writes, ``sync`` confirms. A batch is kept in memory, encoded, from the one to the other.
- After an error of either the stream is ``broken``: what is appended then is only remembered, until ``mend`` has
  written everything that was not confirmed into a fresh segment. Nothing is lost by that but time.
- A segment is begun when everything before it is on disk (see the package's rules), so only the last one has batches
  that are not confirmed.
- Segments are freed oldest first and one by one, the folder synced after each: whatever a power loss brings back, no
  number is missing in the middle; but for what is written down as freed, which may be missing (``free_between``).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from headway.store.journal.batch import Entry, Packed, pack
from headway.store.journal.files import Buffer, Files, write_all
from headway.store.journal.index import SegmentIndex
from headway.store.journal.losses import FREED, joined, read_losses, write_losses
from headway.store.journal.readable import ReadableStream
from headway.store.journal.recovery_scan import recovery_scan
from headway.store.journal.repair import repair_stream
from headway.store.journal.segment import SegmentHeader, file_name, pack_header

SEGMENT_BYTES = 64 * 1024 * 1024


class Stream(ReadableStream):
    """To be opened before anything else. ``append`` to ``close`` are for one thread; reading is for all."""

    def __init__(self, files: Files, folder: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        super().__init__(files, folder)
        self.broken: OSError | None = None
        """Why what was appended since the last sync is only in memory; None while all is well."""
        self._segment_bytes = segment_bytes
        self._token = 0
        self._current: SegmentIndex | None = None
        self._fd: int | None = None
        self._next_number = 1
        self._next_ordinal = 1
        self._synced = 0
        """All batches up to this number are on disk."""
        self._roll = False
        self._folder_dirty = False
        """A removal is not known to be on disk."""
        self._left_over: list[Path] = []
        """Files that a ``mend`` gave up and could not remove."""

    def open(self, *, repair: bool = False, checked: Callable[[int], None] | None = None) -> list[str]:
        """Reads what is there; ``checked`` hears of bytes that were looked through. Returns a sentence for each thing
        that was cut or lost. Raises Corrupt for losses that no power loss explains, unless ``repair``: then it goes on
        with what can be read. Raises OSError."""
        self._files.make_folder(self.folder)
        found = recovery_scan(self._files, self.folder, checked)
        said = repair_stream(self._files, self.folder, found, repair=repair)
        self._token = secrets.randbits(64) if found.token is None else found.token
        self._next_number = found.next_number
        self._next_ordinal = found.next_ordinal
        self._synced = found.next_number - 1
        for segment in found.segments:
            self._catalogue.add_segment(segment)
        if found.segments:
            self._current = found.segments[-1]
            self._fd = self._files.open(self._current.path)
        return said

    def close(self) -> None:
        """Closes at once; unsynced batches may be lost."""
        self._close_fd()
        super().close()

    def check(self) -> None:
        """Assert what always holds between two calls. It goes through all segments."""
        self._catalogue.check()
        kept = [packed.header.number for packed in self._catalogue.kept]
        assert kept == list(range(self._synced + 1, self._next_number)), "what is not on disk is kept"

    # -- writing ----------------------------------------------------------------------------------------------------

    @property
    def unsynced_bytes(self) -> int:
        """Bytes of batches that are not known to be on disk; they are in memory too."""
        return self._catalogue.kept_bytes

    def packed(self, entries: Iterable[Entry], time_us: int) -> list[Packed]:
        """The entries as the next batches. Raises ValueError for what cannot be written (batch.pack)."""
        return pack(
            entries,
            token=self._token,
            number=self._next_number,
            synced=self._synced,
            time_us=time_us,
            after=self.last_sequence,
        )

    def append(self, entries: Iterable[Entry], time_us: int) -> None:
        """Write the entries. Their pieces must not be changed before they are on disk. Raises ValueError, and then
        nothing has happened; OSError, and then they are remembered. A broken stream only remembers them."""
        self.append_packed(self.packed(entries, time_us))

    def append_packed(self, batches: list[Packed]) -> None:
        """Write what ``packed`` gave. Nothing may have been appended in between. Raises OSError."""
        if not batches:
            return
        self._next_number += len(batches)
        try:
            while batches and self.broken is None:
                batches = self._write_some(batches)
        except BaseException as error:  # whatever it was, the numbers are taken and the batches must not be lost
            self._break(error if isinstance(error, OSError) else OSError(f"interrupted: {error!r}"))
            self._remember(batches)
            raise
        self._remember(batches)

    def _write_some(self, batches: list[Packed]) -> list[Packed]:
        """Write as many as the current segment takes. Returns those that are left."""
        current = self._current
        if current is None or self._fd is None or self._roll or current.end > self._segment_bytes:
            self.sync()
            current, fd = self._begin(batches[0].header.number)
        else:
            fd = self._fd
        offset = start = current.end
        taken: list[Packed] = []
        buffers: list[Buffer] = []
        for packed in batches:
            if offset > self._segment_bytes and taken:
                break
            taken.append(packed)
            buffers += packed.buffers
            offset += packed.size
        write_all(self._files, fd, buffers, start)
        self._remember(taken)
        return batches[len(taken) :]

    def _remember(self, batches: Iterable[Packed]) -> None:
        """Batches are in the current segment from here on; where it is broken they will be in a fresh one."""
        for packed in batches:
            assert self._current is not None
            self._catalogue.add(packed, self._current.end)

    def roll(self) -> None:
        """The next batch goes to a new segment."""
        self._roll = self._current is not None and len(self._current) > 0

    def sync(self) -> None:
        """Everything appended is on disk. Raises OSError, as a broken stream does at once."""
        if self.broken is not None:
            raise self.broken
        if not self.unsynced_bytes or self._fd is None:
            return
        try:
            self._files.sync(self._fd)
        except OSError as error:
            self._break(error)
            raise
        self._synced = self._catalogue.all_on_disk()

    def mend(self) -> None:
        """Write everything that is not known to be on disk into a fresh segment, and sync it. Nothing to do for a
        stream that is not broken. Raises OSError; then it stays broken."""
        if self.broken is None:
            return
        try:
            fresh, fd = self._written_anew()
        except OSError as error:
            self.broken = error
            raise
        old = self._catalogue.supersede(fresh)
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
            kept = self._catalogue.kept
            write_all(self._files, fd, [buffer for packed in kept for buffer in packed.buffers], fresh.end)
            self._files.sync(fd)
        except OSError:
            self._abandon(fresh.path, fd)
            raise
        for packed in kept:
            fresh.add(fresh.end, packed.header)
        return fresh, fd

    def _cut_superseded(self, old: SegmentIndex) -> None:
        """Give back the room of a tail that counts no longer. Raises OSError; then it is passed over."""
        if len(old):
            fd = self._files.open(old.path)
            try:
                self._files.truncate(fd, old.end)
            finally:
                self._files.close(fd)
            return
        with suppress(FileNotFoundError):  # it may never have been made
            self._files.remove(old.path)
            self._folder_dirty = True
        self._catalogue.drop(old)

    def _break(self, error: OSError) -> None:
        self.broken = error
        if self._current is None:  # not even a file; what is remembered needs a place to be looked up
            path = self.folder / file_name(0)
            self._current = SegmentIndex(path, self._header(0, self._synced + 1, 0))
            self._catalogue.add_segment(self._current)

    # -- segments ---------------------------------------------------------------------------------------------------

    def _begin(self, first_number: int) -> tuple[SegmentIndex, int]:
        """The next segment, for batches from this number on. Everything before it is on disk. Raises OSError."""
        segment, fd = self._create(first_number, self.last_sequence)
        self._catalogue.add_segment(segment)
        self._make_current(segment, fd)
        self._roll = False
        return segment, fd

    def _create(self, first_number: int, last_sequence: int) -> tuple[SegmentIndex, int]:
        """A new segment with its header and its name on disk. Raises OSError, and leaves nothing if it can."""
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
        return SegmentHeader(ordinal, self._token, first_number, last_sequence, self.folder.name)

    def _abandon(self, path: Path, fd: int) -> None:
        self._left_over.append(path)
        with suppress(OSError):
            self._files.close(fd)
        with suppress(OSError):
            self._remove_left_over()

    def _remove_left_over(self) -> None:
        """Raises OSError. As long as such a file is there, what supersedes it must be there too."""
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

    def free_before(self, sequence: int) -> int:
        """Remove the oldest segments that have no sequence from this one on; never the current one. Returns the bytes
        that are free. Raises OSError; what was freed by then is."""
        return self._free(lambda oldest: oldest.own_last < sequence)

    def free_for_age(self, before_us: int, upto_sequence: int) -> int:
        """As ``free_before(upto_sequence)``, but only segments whose last batch is older than ``before_us``."""
        return self._free(
            lambda oldest: (
                oldest.own_last < upto_sequence and (oldest.last_time_us is None or oldest.last_time_us < before_us)
            )
        )

    def free_for_size(self, bytes_max: int, upto_sequence: int) -> int:
        """As ``free_before(upto_sequence)``, but only until the stream is no larger than ``bytes_max``."""
        return self._free(lambda oldest: oldest.own_last < upto_sequence and self.bytes > bytes_max)

    def _free(self, may_go: Callable[[SegmentIndex], bool]) -> int:
        freed = 0
        while len(self._catalogue) > 1 and may_go(oldest := self._catalogue.oldest):
            self._remove_left_over()
            self._sync_folder()
            freed += self._remove(oldest)
        self._sync_folder()
        return freed

    def _remove(self, segment: SegmentIndex) -> int:
        """Returns the bytes that are free. Raises OSError."""
        at = self._catalogue.drop(segment)  # first: a reader that does not find the file looks again
        try:
            with suppress(FileNotFoundError):
                self._files.remove(segment.path)
        except OSError:
            self._catalogue.put_back(segment, at)
            raise
        self._catalogue.forget(segment)
        self._folder_dirty = True
        return segment.end

    def free_between(self, unwanted: Container[int], snapshots: Container[int]) -> int:
        """Remove segments between others that stay. Those that begin with a sequence of ``snapshots`` say all there is
        at that moment; of those that begin with one of ``unwanted``, what they say until the next such moment is wanted
        by nobody. Never the oldest, nor the current one. Returns the bytes that are free. Raises OSError."""
        segments = self._catalogue.all[1:]
        superseded = [
            (segment, (segment.header.first_number, following.header.first_number - 1))
            for segment, following in pairwise(segments)
            if segment.own_first in unwanted and segment.own_first in snapshots and following.own_first in snapshots
        ]  # fmt: skip
        if not superseded:
            return 0
        self.sync()  # what says it again is on disk
        self._remove_left_over()
        self._sync_folder()  # of what is older than the oldest nothing comes back
        known = read_losses(self._files, self.folder, FREED)
        oldest = self._catalogue.oldest.header.first_number
        numbers = [pair for pair in known if pair[1] > oldest] + [numbers for _, numbers in superseded]
        write_losses(self._files, self.folder, joined(numbers), FREED)  # first: nobody is to look for them
        freed = sum(self._remove(segment) for segment, _ in superseded)
        self._sync_folder()
        return freed

    def _sync_folder(self) -> None:
        if self._folder_dirty:
            self._files.sync_folder(self.folder)
            self._folder_dirty = False
