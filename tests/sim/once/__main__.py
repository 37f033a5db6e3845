"""Many seeds: ``python -m tests.sim.once --seeds 1000 --steps 300``."""

from __future__ import annotations

import sys

from tests.sim.once.world import World
from tests.sim.seeds import main

if __name__ == "__main__":
    sys.exit(main(World, "tests.sim.once", 200))
