"""The broker, looking every moment for segments that it can free, so that this happens in lives as short as these; and
on the disks that the story has for it (disks.py). Arguments: FOLDER serve ..."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.crash.disks import Disks

from headway import cli
from headway.server.journal import writing as journal_writer

TIDY_EVERY_S = 0.1


def main() -> None:
    assert journal_writer.TIDY_EVERY_S
    journal_writer.TIDY_EVERY_S = TIDY_EVERY_S
    os.pwritev = Disks(Path(sys.argv.pop(1)).resolve()).write  # type: ignore[assignment]
    cli.main()
