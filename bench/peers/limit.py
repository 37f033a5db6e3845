"""No broker: the bare sender, this machine's limit for the pattern."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from platform import python_version

from bench.peers.peer import Instance, Peer
from bench.wires.bare import Bare


class Limit(Peer):
    name, title, program = "limit", "limit (bare sender)", sys.executable
    install = "make setup"
    wire = Bare()
    is_limit = True
    why = ("One Python process writes what it reads from the publisher to every subscriber: no parsing, no matching.",)

    def version(self) -> str:
        return f"Python {python_version()}"

    def command(self, instance: Instance) -> list[str]:
        return [sys.executable, "-m", "bench.sender", str(instance.port)]

    def env(self, instance: Instance) -> Mapping[str, str] | None:
        return os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
