"""Errors of a journal that a retry cannot fix."""

from __future__ import annotations

from pathlib import Path


class Corrupt(Exception):
    """Data that had been on disk is missing or damaged."""

    def __init__(self, path: Path, offset: int, what: str) -> None:
        """``what`` is wrong, in words, at byte ``offset`` of ``path``."""
        super().__init__(
            f"{path} is damaged at byte {offset}: {what}. `headway journal verify` shows all of it; "
            "with `--repair` Headway goes on with what can be read, and says what is lost."
        )
        self.path = path
        self.offset = offset
        self.what = what


class Locked(Exception):
    """Another process has the journal open."""

    def __init__(self, folder: Path, pid: int | None) -> None:
        who = "another process" if pid is None else f"process {pid}"
        super().__init__(f"the journal in {folder} is in use by {who}")
        self.pid = pid
