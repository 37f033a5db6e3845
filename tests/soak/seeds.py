"""The simulators and a fuzzer over a whole range of seeds, of which ``make test`` has a handful."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.soak.part import Part, Row

ROOT = Path(__file__).parents[2]
SEEDS = os.environ.get("HEADWAY_SEEDS", "1-200")
KINDS = {
    "clients and topics": "tests/sim/test_sim.py",
    "queues": "tests/sim/queues",
    "images of keyed topics": "tests/sim/images",
    "a restart at any moment": "tests/sim/test_restart.py",
    "AMQP channels": "tests/fuzz/test_amqp_channels_fuzz.py",
}


def run(say: Callable[[str], None]) -> Iterator[Row]:
    for kind, tests in KINDS.items():
        say(f"{kind}, seeds {SEEDS}")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-n", "2", "--tb", "short", tests], cwd=ROOT,
            env={**os.environ, "HEADWAY_SEEDS": SEEDS}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            say(done.stdout + done.stderr)
        *_, last = done.stdout.splitlines() or [""]
        yield Row(f"{kind}, seeds {SEEDS}", last.strip("= "), "all pass", done.returncode == 0)


PART = Part("seeds", "simulators and a fuzzer, many seeds", run)
