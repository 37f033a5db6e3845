"""A broker's journal on disk: streams in sub-folders, and a lock against a second broker.

A commit goes to several streams, each a file of its own. It is whole or not there: its part in the first stream is
written last, when the others are on disk, and these say which batch of the first stream they await. After a kill in
between, a start cuts them (recovery.py). Nothing of such a commit was confirmed, because only the last write ends
it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from headway.store.journal.disk import Files, opened, read_all, write_all
from headway.store.journal.segments import FREED, LOSSES, Entry
from headway.store.journal.stream import SEGMENT_BYTES, Stream

LOCK_NAME = "lock"
_NAME = re.compile(r"[a-z0-9_-]{1,64}")


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
            if not _NAME.fullmatch(name) or name == LOCK_NAME:
                raise ValueError(f"{name!r} cannot be a stream's name")
        self._files.make_folder(self.folder)
        self._lock()
        said = []
        try:
            for name in names:
                stream = Stream(self._files, self.folder / name, self._segment_bytes)
                awaited = None if self._first is None else self._first.last_number
                said += stream.open(repair=repair, checked=checked, awaited=awaited)
                self._streams[name] = stream
        except BaseException:
            self.close()
            raise
        return said

    def stream(self, name: str) -> Stream:
        """Raises KeyError."""
        return self._streams[name]

    def close(self) -> None:
        """Closes at once; unsynced batches may be lost."""
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()
        if self._lock_fd is not None:
            self._files.close(self._lock_fd)
            self._lock_fd = None

    def check(self) -> None:
        """Asserts the invariants of all streams."""
        for stream in self._streams.values():
            stream.check()

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
        """Brings everything to disk, and removes and replaces no file until ``release``. Returns the files of all
        streams, and how far each goes. Raises OSError; then nothing is held."""
        self.mend()
        lists = [stream.folder / name for stream in self._streams.values() for name in (LOSSES, FREED)]
        found = [(path, self._files.size(path)) for path in lists if path.name in self._files.names(path.parent)]
        return found + [held for stream in self._streams.values() for held in stream.hold()]

    def release(self) -> None:
        for stream in self._streams.values():
            stream.release()

    # -- the lock ---------------------------------------------------------------------------------------------------

    def _lock(self) -> None:
        path = self.folder / LOCK_NAME
        try:
            self._lock_fd = self._files.lock(path)
        except BlockingIOError:
            raise Locked(self.folder, self._owner(path)) from None
        with suppress(OSError):  # only a hint for a second broker that finds the lock taken
            self._files.truncate(self._lock_fd, 0)
            write_all(self._files, self._lock_fd, [f"{os.getpid()}\n".encode()], 0)

    def _owner(self, path: Path) -> int | None:
        with suppress(OSError, ValueError), opened(self._files, path, read_only=True) as fd:
            return int(read_all(self._files, fd, 32, 0))
        return None


def _try(errors: list[OSError], step: Callable[[], None]) -> None:
    try:
        step()
    except OSError as error:
        errors.append(error)
