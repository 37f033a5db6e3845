"""Many seeds: ``python -m tests.sim.images --seeds 1000``."""

from __future__ import annotations

import sys

from tests.sim.images.world import STEPS, World
from tests.sim.seeds import main

if __name__ == "__main__":
    sys.exit(main(World, "tests.sim.images", STEPS))
