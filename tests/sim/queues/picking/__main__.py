"""Many seeds: ``python -m tests.sim.queues.picking --seeds 1000 --steps 200``."""

from __future__ import annotations

import sys

from tests.sim.queues.picking.world import World
from tests.sim.seeds import main

if __name__ == "__main__":
    sys.exit(main(World, "tests.sim.queues.picking", 150))
