"""What a repair has accepted as lost: ranges of batch numbers, in a file ``losses`` beside the segments.

The segments stay as they are, so that what happened can be looked into later. The file is JSON: a list of pairs, first
and last number. One that cannot be read is as good as none: the damage is refused again, and a repair writes it anew.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from headway.store.journal.files import Files, read_all, write_all

FILE_NAME = "losses"
_PARTIAL = "losses.partial"

Numbers = tuple[int, int]
"""First and last, both inclusive."""


def read_losses(files: Files, folder: Path) -> list[Numbers]:
    """Raises OSError, but not where there is no such file."""
    try:
        fd = files.open(folder / FILE_NAME, read_only=True)
    except FileNotFoundError:
        return []
    try:
        text = read_all(files, fd, files.size(folder / FILE_NAME), 0)
        return [(int(first), int(last)) for first, last in json.loads(text)]
    except (ValueError, TypeError):
        return []
    finally:
        files.close(fd)


def write_losses(files: Files, folder: Path, losses: list[Numbers]) -> None:
    """Whole, or not at all. Raises OSError."""
    partial = folder / _PARTIAL
    with suppress(FileNotFoundError):
        files.remove(partial)
    fd = files.create(partial)
    try:
        write_all(files, fd, [json.dumps(sorted(set(losses))).encode()], 0)
        files.sync(fd)
    finally:
        files.close(fd)
    files.rename(partial, folder / FILE_NAME)
    files.sync_folder(folder)


def is_accepted(losses: list[Numbers], numbers: Numbers) -> bool:
    return any(first <= numbers[0] and numbers[1] <= last for first, last in losses)
