"""A broker's journal on disk: streams in sub-folders, and a lock against a second broker.

A commit goes to several streams, each a file of its own. It is whole or not there: its part in the first stream is
written last, when the others are on disk, and these say which batch of the first stream they await. After a kill in
between, a start cuts them (recovery.py). Nothing of such a commit was confirmed, because only the last write ends
it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from headway.store.journal.disk import Files, Misplaced, opened, read_all, write_all
from headway.store.journal.manifest import LOCK_NAME, MANIFEST_NAME, Manifest, is_stream_name, segment_paths
from headway.store.journal.recovery import accept_losses, manifest_scan, misplaced, recovery_scan, refuse, set_aside
from headway.store.journal.segments import FREED, LOSSES, Entry, ordinal_of
from headway.store.journal.stream import SEGMENT_BYTES, Stream


class Locked(Exception):
    """Another process has the journal open."""

    def __init__(self, folder: Path, pid: int | None) -> None:
        who = "another process" if pid is None else f"process {pid}"
        super().__init__(f"the journal in {folder} is in use by {who}")
        self.pid = pid


class Journal:
    """For one thread; other threads may read the streams."""

    def __init__(self, files: Files, folder: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.folder = folder
        self._files = files
        self._segment_bytes = segment_bytes
        self._streams: dict[str, Stream] = {}
        self._manifest: Manifest | None = None
        self._lock_fd: int | None = None

    @property
    def _first(self) -> Stream | None:
        return next(iter(self._streams.values()), None)

    def open(
        self, names: Collection[str], *, repair: bool = False, checked: Callable[[int], None] | None = None
    ) -> list[str]:
        """Opens these streams, and creates new ones. The first one decides which commits are whole. Names have
        lowercase letters, digits, ``_`` and ``-``. ``checked`` is told how many bytes were checked. Returns a sentence
        for each thing that was cut or lost. Raises Locked; Corrupt, unless ``repair``; OSError. After an error nothing
        is open."""
        for name in names:
            if not is_stream_name(name):
                raise ValueError(f"{name!r} cannot be a stream's name")
        self._files.make_folder(self.folder)
        said = self._lock(repair=repair)
        try:
            return said + self._opened(list(names), repair, checked) if names else said
        except BaseException:
            self.close()
            raise

    def _opened(self, names: list[str], repair: bool, checked: Callable[[int], None] | None) -> list[str]:
        """Reads all there is, and changes nothing while there is a loss that nobody accepts."""
        listed, losses = manifest_scan(self._files, self.folder, [self.folder / name for name in names])
        manifest = Manifest(self._files, self.folder, listed)
        streams = [Stream(self._files, self.folder / name, self._segment_bytes, manifest) for name in names]
        found = [streams[0].survey(checked)]
        awaited = None if found[0].open_ended else found[0].next_number - 1
        found += [stream.survey(checked, awaited) for stream in streams[1:]]
        losses += [loss for scan in found for loss in scan.losses]
        gone = {name: entry for name, entry in sorted(listed.items())
                if name not in names and not segment_paths(self._files, self.folder / name)}  # fmt: skip
        unopened = [loss for name, entry in gone.items()
                    for loss in recovery_scan(self._files, self.folder / name, listed=entry).losses]  # fmt: skip
        if not repair:
            refuse(losses + unopened)
        if found[0].open_ended:  # what another stream awaits was there
            found[0].give_up_to(max(scan.awaited for scan in found))
        for stream, scan in zip(streams, found, strict=True):
            accept_losses(self._files, stream.folder, scan)
        own = [loss for loss in losses if loss.path == self.folder / MANIFEST_NAME]
        if own:
            with suppress(FileNotFoundError):
                set_aside(self._files, self.folder / MANIFEST_NAME)
        manifest.streams = {name: listed[name] for name in listed.keys() - gone.keys() - set(names)}
        manifest.streams |= {name: entry for name, scan in zip(names, found, strict=True) if (entry := scan.listed)}
        with suppress(OSError):  # of a full disk: it stays stale, and nothing is written to a stream before it
            manifest.write()
        said = [str(loss) for loss in own + unopened]
        for stream, scan in zip(streams, found, strict=True):
            said += stream.resume(scan)
            self._streams[stream.folder.name] = stream
        self._manifest = manifest
        return said

    def stream(self, name: str) -> Stream:
        """Raises KeyError."""
        return self._streams[name]

    def finish(self) -> None:
        """Ends cleanly: brings everything to disk, writes down where each stream ends, and closes. After an OSError
        the ends are not known, as after a kill."""
        manifest = self._manifest
        try:
            if manifest is not None:
                self.mend()
                ends = {name: stream.end for name, stream in self._streams.items()}
                manifest.streams = {
                    name: replace(entry, end=ends.get(name, entry.end)) for name, entry in manifest.streams.items()
                }
                manifest.write()
        except OSError:
            pass
        finally:
            self.close()

    def close(self) -> None:
        """Closes at once; unsynced batches may be lost."""
        self._manifest = None
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()
        if self._lock_fd is not None:
            self._files.close(self._lock_fd)
            self._lock_fd = None

    def check(self) -> None:
        """Asserts the invariants of all streams."""
        for name, stream in self._streams.items():
            stream.check()
            listed = None if self._manifest is None else self._manifest.streams.get(name)
            if listed is not None and stream.broken is None:
                ordinals = [ordinal_of(segment.name) for segment in stream.segments]
                assert listed.first.ordinal in ordinals, "the first segment that is listed is there"
                assert listed.last.ordinal == ordinals[-1], "the last segment is listed"

    # -- writing ----------------------------------------------------------------------------------------------------

    @property
    def unsynced_bytes(self) -> int:
        """Bytes of batches that are not known to be on disk; they are in memory too."""
        return sum(stream.unsynced_bytes for stream in self._streams.values())

    @property
    def broken(self) -> OSError | None:
        """The error of a broken stream, if one is broken."""
        return next((stream.broken for stream in self._streams.values() if stream.broken), None)

    def commit(
        self,
        work: Mapping[str, Sequence[Entry]],
        time_us: int,
        *,
        sync: bool = True,
        roll: Collection[str] = (),
    ) -> None:
        """Appends to each stream; those in ``roll`` begin a new segment with it. When it returns, everything so far is
        on disk, or with ``sync=False`` written. Broken streams are mended first.

        Raises the first OSError. The work is held in memory then, and is on disk once a later commit or ``mend``
        returns. Raises ValueError for entries that cannot be written (batch.pack); then nothing was taken over."""
        errors: list[OSError] = []
        others = [stream for stream in self._streams.values() if stream is not self._first]
        for stream in others:
            _try(errors, stream.mend)
        if not errors and self._first is not None:
            _try(errors, self._first.mend)
        last, awaits = [], 0
        if self._first is not None and work.get(self._first.folder.name):
            last = self._first.packed(work[self._first.folder.name], time_us)
            awaits = last[-1].header.number
        packed = [(stream, stream.packed(work[name], time_us, awaits)) for stream in others
                  if work.get(name := stream.folder.name)]  # fmt: skip
        for name in roll:
            self._streams[name].roll()
        for stream, batches in packed:
            _try(errors, partial(stream.append_packed, batches))
        if sync:
            for stream in others:
                _try(errors, stream.sync)
        if self._first is not None:
            if errors and last:
                self._first.put_off(errors[0])
            _try(errors, partial(self._first.append_packed, last))
            if sync:
                _try(errors, self._first.sync)
        if errors:
            raise errors[0]

    def mend(self) -> None:
        """Brings everything so far to disk. Raises OSError."""
        self.commit({}, 0)

    # -- holding ----------------------------------------------------------------------------------------------------

    def hold(self) -> list[tuple[Path, int]]:
        """Brings everything to disk, and removes and replaces no file of a stream until ``release``. Returns the files
        of all streams, and how far each goes. The manifest is not among them, because it is replaced meanwhile: a copy
        gets its own (backup.py). Raises OSError; then nothing is held."""
        self.mend()
        lists = [stream.folder / name for stream in self._streams.values() for name in (LOSSES, FREED)]
        found = [(path, self._files.size(path)) for path in lists if path.name in self._files.names(path.parent)]
        return found + [held for stream in self._streams.values() for held in stream.hold()]

    def release(self) -> None:
        for stream in self._streams.values():
            stream.release()

    # -- the lock ---------------------------------------------------------------------------------------------------

    def _lock(self, *, repair: bool) -> list[str]:
        """Returns a sentence if something else was in the lock's place."""
        path, said = self.folder / LOCK_NAME, list[str]()
        try:
            try:
                self._lock_fd = self._files.lock(path)
            except Misplaced as error:
                loss = misplaced(path, error)
                if not repair:
                    refuse([loss])
                set_aside(self._files, path)
                said.append(str(loss))
                self._lock_fd = self._files.lock(path)
        except BlockingIOError:
            raise Locked(self.folder, self._owner(path)) from None
        with suppress(OSError):  # only a hint for a second broker that finds the lock taken
            self._files.truncate(self._lock_fd, 0)
            write_all(self._files, self._lock_fd, [f"{os.getpid()}\n".encode()], 0)
        return said

    def _owner(self, path: Path) -> int | None:
        with suppress(OSError, ValueError), opened(self._files, path, read_only=True) as fd:
            return int(read_all(self._files, fd, 32, 0))
        return None


def _try(errors: list[OSError], step: Callable[[], None]) -> None:
    try:
        step()
    except OSError as error:
        errors.append(error)
