"""Clients that come for a state and for what changes it, two hundred times over each protocol, while others publish."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.interop.atomic_clients import OVER, rounds
from tests.interop.atomic_stories import CONFIG
from tests.interop.process import BrokerProcess
from tests.soak.part import Part, Row

ROUNDS = int(os.environ.get("HEADWAY_ROUNDS", "200"))


def run(say: Callable[[str], None]) -> Iterator[Row]:
    for over in OVER:
        with tempfile.TemporaryDirectory() as folder:
            broker = BrokerProcess(Path(folder), CONFIG)
            try:
                changed, keys = rounds(broker, over, ROUNDS)
                broker.stop()
                found, held = f"nothing; the state changed meanwhile in {changed} rounds, {keys} times", changed > 0
            except (AssertionError, OSError, TimeoutError) as error:
                found, held = str(error).splitlines()[0] if str(error) else type(error).__name__, False
            finally:
                broker.kill()
        say(f"{over}: {found}")
        yield Row(f"{over}, {ROUNDS} times: lost or doubled", found, "nothing, while the state changes", held)


PART = Part("atomic", "nothing lost or doubled between snapshot and live, over each protocol", run)
