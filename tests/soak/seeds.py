"""The simulators and a fuzzer over a whole range of seeds, of which ``make test`` has a handful."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.soak.part import Part, Row

ROOT = Path(__file__).parents[2]
MANY = {"AMQP channels": "1-450", "odd journals": "1-1000"}
"""The seeds of what takes some hundredths of a second each."""
KINDS = {
    "clients and topics": "tests/sim/test_sim.py",
    "receipts": "tests/sim/test_sim_receipts.py",
    "queues": "tests/sim/queues",
    "images of keyed topics": "tests/sim/images",
    "a restart at any moment": "tests/sim/test_restart.py",
    "power losses under a broker": "tests/server/test_journal_faults.py",
    "power losses under writers": "tests/server/test_writers_journal.py",
    "permissions that change": "tests/server/test_permission_worlds.py",
    "odd journals": "tests/server/test_odd_journals.py",
    "odd requests to the admin API": "tests/interop/test_interop_admin_fuzz.py",
    "AMQP channels": "tests/fuzz/test_amqp_channels_fuzz.py",
}


def run(say: Callable[[str], None]) -> Iterator[Row]:
    for kind, tests in KINDS.items():
        seeds = os.environ.get("HEADWAY_SEEDS", MANY.get(kind, "1-200"))
        say(f"{kind}, seeds {seeds}")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-n", "2", "--tb", "short", tests], cwd=ROOT,
            env={**os.environ, "HEADWAY_SEEDS": seeds}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            say(done.stdout + done.stderr)
        *_, last = done.stdout.splitlines() or [""]
        yield Row(f"{kind}, seeds {seeds}", last.strip("= "), "all pass", done.returncode == 0)


PART = Part("seeds", "simulators and a fuzzer, many seeds", run)
