"""Staged parts: what writers have handed over and is not published yet, a file each, in a folder for each writer.

A part is on disk when ``add`` returns, and never changes. Who stages parts and does not come back leaves them lying;
``tidy`` removes what is old. All of it is for a worker thread, and raises OSError.
"""

from __future__ import annotations

import os
import re
import shutil
import time
import uuid
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from headway.store.journal.files import Files, write_all

STAGED = "staged"
"""The folder in the journal's; no stream is called so."""
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


def is_name(text: str) -> bool:
    """A writer, or a part, may be called so."""
    return _NAME.fullmatch(text) is not None


class Staged:
    def __init__(self, files: Files, folder: Path) -> None:
        self.folder = folder
        self._files = files

    def add(self, writer: str, data: bytes) -> str:
        """Returns the part's name."""
        folder, part = self.folder / writer, uuid.uuid4().hex
        self._files.make_folder(folder)
        partial = folder / f"{part}.partial"
        try:
            fd = self._files.create(partial)
            try:
                write_all(self._files, fd, [data], 0)
                self._files.sync(fd)
            finally:
                self._files.close(fd)
            self._files.rename(partial, self.path(writer, part))
            self._files.sync_folder(folder)
        except BaseException:
            with suppress(OSError):
                self._files.remove(partial)
            raise
        return part

    def path(self, writer: str, part: str) -> Path:
        return self.folder / writer / f"{part}.arrow"

    def parts(self, writer: str) -> list[str]:
        """All that are here."""
        folder = self.folder / writer
        return [path.stem for path in folder.glob("*.arrow")] if folder.is_dir() else []

    def missing(self, writer: str, parts: Iterable[str]) -> list[str]:
        """Those of these that are not here."""
        return [part for part in parts if not self.path(writer, part).is_file()]

    def remove(self, writer: str, parts: Iterable[str]) -> None:
        """Those that are here."""
        for part in parts:
            self.path(writer, part).unlink(missing_ok=True)
        with suppress(OSError):  # others are in it
            os.rmdir(self.folder / writer)

    def tidy(self, age_s: float, busy: Collection[str]) -> int:
        """Remove what is older than that, but for writers that are ``busy``. Returns how many parts."""
        if not self.folder.is_dir():
            return 0
        removed, since_s = 0, time.time() - age_s
        for folder in self.folder.iterdir():
            if folder.name in busy:
                continue
            old = [file for file in folder.iterdir() if file.stat().st_mtime < since_s]
            for file in old:
                file.unlink(missing_ok=True)
            removed += len(old)
            with suppress(OSError):
                folder.rmdir()
        return removed

    def free_bytes(self) -> int:
        return shutil.disk_usage(self.folder.parent).free
