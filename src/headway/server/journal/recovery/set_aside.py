"""Odd entries of a journal, which a start sets aside: they cannot be decoded, or not be replayed.

Whatever is in the journal, the broker starts. A checksum only says that an entry is as it was written, perhaps by
another release, or by one with a bug. To refuse the start for one record would keep all others from their consumers,
and its operator could do nothing about it: no tool changes a journal. So the start goes on without the entry.

Nothing is lost silently: the entry is kept in a file in the journal's folder, counted, and told in the log. An entry
that is still in the journal at the next start is set aside again, and is in the file once.
"""

from __future__ import annotations

import base64
import json
import logging
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from headway.server.journal.entries import KINDS
from headway.store.journal import REAL, Corrupt, Files, StoredEntry, opened, read_all, write_all

log = logging.getLogger("headway")

FILE_NAME = "set-aside.jsonl"
"""JSON lines, one for each entry, with its bytes."""
TOLD_MAX = 20
"""The log tells so many, and the number of all."""
HELD_BYTES_MAX = 8 * 1024 * 1024

_Key = tuple[str, int, int, int]
"""Stream, kind, sequence and checksum of an entry."""


class SetAside:
    def __init__(self, folder: Path | None = None, files: Files = REAL) -> None:
        """``folder``: the journal's, to keep the entries there; None: they are only counted and told."""
        self.told: list[str] = []
        """A line for each entry."""
        self._path = None if folder is None else folder / FILE_NAME
        self._files = files
        self._seen: set[_Key] = set()
        self._kept: set[_Key] | None = None
        """Those that are in the file already; None: it was not read yet."""
        self._lines: list[bytes] = []
        self._held_bytes = 0

    def __len__(self) -> int:
        return len(self._seen)

    def of(self, stream: str) -> Callable[[StoredEntry, Exception], None]:
        """Returns what takes the odd entries of a stream: ``put``."""
        return lambda stored, error: self.put(stream, stored, error)

    def put(self, stream: str, stored: StoredEntry, error: Exception) -> None:
        """Raises OSError; Corrupt and MemoryError, if the error is one and so not the entry's fault."""
        if isinstance(error, OSError | Corrupt | MemoryError):
            raise error
        data = bytes(stored.data)
        key = (stream, stored.kind, stored.sequence, zlib.crc32(data))
        if key in self._seen:
            return
        self._seen.add(key)
        kind, why = KINDS.get(stored.kind, f"kind {stored.kind}"), f"{type(error).__name__}: {error}"[:300]
        self.told.append(f"{stream}: {kind} at sequence {stored.sequence}, {len(data)} bytes: {why}")
        if self._path is None:
            return
        if self._kept is None:
            self._kept = self._read()
        if key not in self._kept:
            self._kept.add(key)
            line = {
                "stream": stream, "kind": stored.kind, "sequence": stored.sequence, "records": stored.count,
                "crc": key[3], "what": kind, "why": why, "at": datetime.now(UTC).isoformat(timespec="seconds"),
                "data": base64.b64encode(data).decode(),
            }  # fmt: skip
            self._lines.append(json.dumps(line).encode() + b"\n")
            self._held_bytes += len(self._lines[-1])
            if self._held_bytes > HELD_BYTES_MAX:
                self._write()

    def finish(self) -> None:
        """Keeps what is not in the file yet, and logs what was set aside. Raises OSError."""
        self._write()
        for line in self.told[:TOLD_MAX]:
            log.error("journal: set aside: %s", line)
        if self._seen:
            log.error("journal: %d entries mean nothing to this release and are set aside in %s; all others are back",
                      len(self._seen), self._path)  # fmt: skip

    # -- the file ---------------------------------------------------------------------------------------------------

    def _read(self) -> set[_Key]:
        """Returns the keys of the entries in the file. A line that was being written when the power failed is none."""
        assert self._path is not None
        if self._path.name not in self._files.names(self._path.parent):
            return set()
        with opened(self._files, self._path, read_only=True) as fd:
            text = read_all(self._files, fd, self._files.size(self._path), 0)
        found: set[_Key] = set()
        for line in text.splitlines():
            try:
                one = json.loads(line)
                found.add((one["stream"], one["kind"], one["sequence"], one["crc"]))
            except (ValueError, KeyError, TypeError):
                continue
        return found

    def _write(self) -> None:
        lines, self._lines, self._held_bytes = self._lines, [], 0
        if not lines or self._path is None:
            return
        fresh = self._path.name not in self._files.names(self._path.parent)
        fd = self._files.create(self._path) if fresh else self._files.open(self._path)
        try:
            size = 0 if fresh else self._files.size(self._path)
            write_all(self._files, fd, [b"\n", *lines] if size else lines, size)
            self._files.sync(fd)
        finally:
            self._files.close(fd)
        self._files.sync_folder(self._path.parent)
