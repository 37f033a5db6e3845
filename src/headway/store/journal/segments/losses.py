"""Missing batches that are accepted: ranges of their numbers, in files beside the segments.

``losses`` has the batches that a repair accepted as lost. The segments stay unchanged, so that the damage can be
examined later. ``freed`` has the batches that were removed between others (Stream.free_between).

Each file is a JSON list of pairs: first and last number. An unreadable file counts as empty; then a start refuses the
damage again, and a repair writes the file again.
"""

from __future__ import annotations

import json
from pathlib import Path

from headway.store.journal.disk import Files, opened, read_all, write_file

LOSSES, FREED = "losses", "freed"

Numbers = tuple[int, int]
"""First and last, both inclusive."""


def read_losses(files: Files, folder: Path, name: str = LOSSES) -> list[Numbers]:
    """Returns the ranges in a file; none if there is no file. Raises OSError."""
    try:
        with opened(files, folder / name, read_only=True) as fd:
            text = read_all(files, fd, files.size(folder / name), 0)
        return [(int(first), int(last)) for first, last in json.loads(text)]
    except (FileNotFoundError, ValueError, TypeError):
        return []


def write_losses(files: Files, folder: Path, losses: list[Numbers], name: str = LOSSES) -> None:
    """Replaces a file atomically. Raises OSError."""
    write_file(files, folder / name, json.dumps(sorted(set(losses))).encode())


def is_accepted(losses: list[Numbers], numbers: Numbers) -> bool:
    return any(first <= numbers[0] and numbers[1] <= last for first, last in losses)


def joined(ranges: list[Numbers]) -> list[Numbers]:
    """Returns the ranges in order; neighbours are merged."""
    found: list[Numbers] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return found
