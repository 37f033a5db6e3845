"""The broker, looking every moment for segments that it can free, so that this happens in lives as short as these; and
on the disks that the story has for it (disks.py). ``python -m tests.crash.eager FOLDER serve ...``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.crash.disks import Disks

from headway.cli import main
from headway.server.journal import keeper

assert keeper.TIDY_EVERY_S
keeper.TIDY_EVERY_S = 0.1

if __name__ == "__main__":
    os.pwritev = Disks(Path(sys.argv.pop(1)).resolve()).write  # type: ignore[assignment]
    main()
