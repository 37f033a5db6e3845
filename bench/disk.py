"""The time that the disk takes to sync."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from statistics import median

BLOCK_BYTES, SYNCS = 4096, 20


def sync_ns(folder: Path) -> int:
    """Measures how long it takes to add 4 KiB to a file in this folder so that the disk has it; the median of some.
    Next to nothing is a folder in memory: a broker's confirms are not worth much there either."""
    took = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for number in range(SYNCS):
            began = time.monotonic_ns()
            os.pwrite(file.fileno(), bytes(BLOCK_BYTES), number * BLOCK_BYTES)
            os.fdatasync(file.fileno())
            took.append(time.monotonic_ns() - began)
    return int(median(took))
