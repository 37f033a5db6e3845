"""A canary in each of the worlds: nobody's trouble is anybody else's, and memory stays within the pool."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.soak.part import Part, Row
from tests.soak.worlds import LONGEST_MS_MAX, P99_MS_MAX, RSS_BEYOND_POOL_BYTES_MAX, all_worlds, held

SECONDS = 15.0


def run(say: Callable[[str], None]) -> Iterator[Row]:
    for name, setting in all_worlds().items():
        with tempfile.TemporaryDirectory() as folder:
            told = held(name, setting, Path(folder), SECONDS)
        say(str(told))
        song, limit = told.song, told.memory_limit_bytes + RSS_BEYOND_POOL_BYTES_MAX
        found = f"p99 {song.p99_ms:g} ms, longest {song.longest_ms:g} ms, lost {song.sent - song.received}"
        wanted = f"p99 {P99_MS_MAX:g} ms, longest {LONGEST_MS_MAX:g} ms, lost 0"
        found += f", RSS {told.rss_peak_bytes / 1e6:.0f} MB"
        yield Row(name, found, f"{wanted}, RSS {limit / 1e6:.0f} MB", told.held)


PART = Part("canaries", "a thousand messages a second beside each kind of trouble", run)
