"""Many seeds: ``python -m tests.sim --seeds 1000 --steps 800``."""

from __future__ import annotations

import sys

from tests.sim.seeds import main
from tests.sim.world import World

if __name__ == "__main__":
    sys.exit(main(World, "tests.sim", 600))
