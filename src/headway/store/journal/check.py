"""Verifying a whole journal, beside a broker that may be at work on it."""

from __future__ import annotations

from pathlib import Path

from headway.store.journal.files import REAL, Files
from headway.store.journal.verify import StreamReport, streams_of, verify

TRIES_MAX = 10


def check(folder: Path, files: Files = REAL) -> list[StreamReport]:
    """Verifies every stream. Raises OSError."""
    return [checked(stream, files) for stream in streams_of(folder, files)]


def checked(folder: Path, files: Files) -> StreamReport:
    """Verifies one stream. A batch that is being written looks damaged for a moment, so a loss is reported only if it
    is found twice. Raises OSError."""
    before: StreamReport | None = None
    for tries_left in reversed(range(TRIES_MAX)):
        try:
            report = verify(folder, files)
        except FileNotFoundError:
            if not tries_left:
                raise
            continue
        if report.good or (before is not None and report.losses == before.losses):
            return report
        before = report
    assert before is not None
    return before
