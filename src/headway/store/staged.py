"""Staged parts: parts that writers uploaded and that are not published yet. Each is a file in its writer's folder.

A part is on disk when ``add`` returns, and never changes. Its name begins with the number of the batch that it is for,
where the writer has said it: when that is published, the parts of attempts that failed go too. ``tidy`` removes old
parts, which a writer may have left behind. While parts are *held* none is removed, so that another process can copy
them; a later ``tidy`` removes them.
Everything here is for worker threads, and raises OSError.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
import uuid
from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from headway.store.journal import Files, write_file

STAGED = "staged"
"""The name of the folder inside the journal's folder. No stream has this name."""
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


def is_name(text: str) -> bool:
    """Returns whether a writer or a part may have this name."""
    return _NAME.fullmatch(text) is not None


class Staged:
    def __init__(self, files: Files, folder: Path) -> None:
        self.folder = folder
        self._files = files
        self._lock = threading.Lock()
        self._holds = 0
        self._adding: Counter[str] = Counter()
        """Parts that are being written, by writer: their folder stays."""

    def hold(self) -> list[tuple[Path, int]]:
        """Removes no part until ``release``. Returns all parts, with their sizes."""
        with self._lock:
            self._holds += 1
            return [(path, path.stat().st_size) for path in sorted(self.folder.glob("*/*.arrow"))]

    def release(self) -> None:
        with self._lock:
            self._holds -= 1

    def add(self, writer: str, data: bytes, batch: int | None = None) -> str:
        """Returns the part's name."""
        part = uuid.uuid4().hex if batch is None else f"{batch}-{uuid.uuid4().hex}"
        with self._lock:
            self._adding[writer] += 1
        try:
            self._files.make_folder(self.folder / writer)
            write_file(self._files, self.path(writer, part), data)
        finally:
            with self._lock:
                self._adding -= Counter((writer,))
        return part

    def path(self, writer: str, part: str) -> Path:
        return self.folder / writer / f"{part}.arrow"

    def missing(self, writer: str, parts: Iterable[str]) -> list[str]:
        """Returns the given parts that do not exist."""
        return [part for part in parts if not self.path(writer, part).is_file()]

    def remove(self, writer: str, parts: Iterable[str], through: int = -1) -> None:
        """Removes the given parts, if they exist, and all that are for batches up to ``through``."""
        with self._lock:
            if not self._holds:
                for part in parts:
                    self.path(writer, part).unlink(missing_ok=True)
                for path in (self.folder / writer).glob("[0-9]*-*.arrow") if through >= 0 else ():
                    if int(path.stem.partition("-")[0]) <= through:
                        path.unlink(missing_ok=True)
            self._remove_folder(writer)

    def _remove_folder(self, writer: str) -> None:
        if not self._adding[writer]:
            with suppress(OSError):  # it is not empty
                os.rmdir(self.folder / writer)

    def set_aside(self, writer: str, part: str) -> Path | None:
        """Renames a part that cannot be read, so that it can be examined until ``tidy`` removes it. Returns its new
        path; None: there is no such part."""
        path = self.path(writer, part)
        if not path.is_file():
            return None
        return path.rename(path.with_suffix(".unreadable"))

    def tidy(self, age_s: float, needed: Collection[str]) -> int:
        """Removes parts older than ``age_s``, except ``needed`` ones, by name. Returns how many."""
        with self._lock:
            return 0 if self._holds or not self.folder.is_dir() else self._tidied(age_s, needed)

    def _tidied(self, age_s: float, needed: Collection[str]) -> int:
        removed, since_s = 0, time.time() - age_s
        for folder in self.folder.iterdir():
            old = [file for file in folder.iterdir() if file.stem not in needed and file.stat().st_mtime < since_s]
            for file in old:
                file.unlink(missing_ok=True)
            removed += len(old)
            self._remove_folder(folder.name)
        return removed

    def free_bytes(self) -> int:
        return shutil.disk_usage(self.folder.parent).free
