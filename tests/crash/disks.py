"""The disks of a life's broker: the journal's and the spill's, or one for both; full when the story says so.

It is said by files: what is written to ``FOLDER/journal`` goes to the journal's disk, all else that is written in
``FOLDER`` to the spill's.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

JOURNAL, SPILL, SHARED = "full-journal", "full-spill", "shared"
"""Files in the folder: this disk takes nothing any more; both are one disk, which has so many bytes."""


class Disks:
    """In the broker's process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._journal = str(folder / "journal")
        self._write = os.pwritev

    def write(self, fd: int, views: Sequence[memoryview], offset: int) -> int:
        """As ``os.pwritev``; as much as there is room for."""
        name = os.readlink(f"/proc/self/fd/{fd}")
        if not name.startswith(str(self._folder)):
            return self._write(fd, views, offset)
        wanted = sum(map(len, views))
        room = self._room(JOURNAL if name.startswith(self._journal) else SPILL, wanted)
        if room >= wanted:
            return self._write(fd, views, offset)
        if room > 0:
            return self._write(fd, [b"".join(views)[:room]], offset)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _room(self, disk: str, wanted: int) -> int:
        if (self._folder / disk).exists():
            return 0
        try:
            return int((self._folder / SHARED).read_text()) - self._used()
        except FileNotFoundError:
            return wanted

    def _used(self) -> int:
        """The spill's files are in no folder."""
        used = journal_bytes(self._folder)
        for number in os.listdir("/proc/self/fd"):
            with suppress(OSError):
                if os.readlink(f"/proc/self/fd/{number}").endswith(" (deleted)"):
                    used += os.fstat(int(number)).st_size
        return used


def journal_bytes(folder: Path) -> int:
    used = 0
    for place, _, names in os.walk(folder / "journal"):
        for name in names:
            with suppress(FileNotFoundError):
                used += os.stat(os.path.join(place, name)).st_size
    return used
