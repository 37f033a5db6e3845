"""The long run: ``python -m tests.crash --kills 50 --seed N``."""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from pathlib import Path

from tests.crash.setting import FSYNC
from tests.crash.story import Story


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description="Kills a broker again and again.")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--fsync", choices=FSYNC, default=None, help="in every life; else each in its turn")
    parser.add_argument("--folder", type=Path, default=None, help="for journals and logs; kept")
    asked = parser.parse_args()
    seed = secrets.randbelow(1_000_000) if asked.seed is None else asked.seed
    again = f"python -m tests.crash --kills {asked.kills} --seed {seed}"
    again += f" --fsync {asked.fsync}" if asked.fsync else ""
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="headway-crash-"))
    print(f"seed {seed}; journal and logs are in {folder}", flush=True)
    told = Story(folder, seed, asked.kills, fsync=asked.fsync, say=lambda text: print(text, flush=True)).tell()
    print(told.summary)
    for text in told.wrong:
        print(f"WRONG {text}")
    print(f"again: {again}")
    return 1 if told.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
