"""Many seeds: ``python -m tests.sim.queues --seeds 1000 --steps 400``. Prints each that fails, to be run again."""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from collections import Counter

import pytest
from tests.sim.queues.world import World


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.queues")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--trail", action="store_true", help="print the last events before a failure")
    parser.add_argument("--hash", action="store_true", help="print the hash of each run")
    args = parser.parse_args()
    failed = 0
    kinds: Counter[str] = Counter()
    began = time.monotonic()
    signal.signal(signal.SIGALRM, _stuck)
    for seed in range(args.first, args.first + args.seeds):
        signal.alarm(60)
        world = None
        try:
            world = World(seed)
            digest = world.run(args.steps)
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - whatever it is, the other seeds run on
            failed += 1
            last = traceback.extract_tb(error.__traceback__)[-1]
            kinds[f"{type(error).__name__} {last.name}:{last.lineno} {str(error)[:60]}"] += 1
            where = f"{last.filename}:{last.lineno}"
            print(f"HEADWAY_SEED={seed} failed: {type(error).__name__}: {str(error)[:300]} ({where})")
            if args.trail:
                print("\n".join(world.trail if world is not None else ()))
                traceback.print_exc()
            continue
        if args.hash:
            print(seed, digest)
        kinds.update(world.counts)
    print(f"{args.seeds - failed} of {args.seeds} seeds passed in {time.monotonic() - began:.1f} s")
    for what, count in kinds.most_common():
        print(f"{count:8} {what}")
    return 1 if failed else 0


def _stuck(signum: int, frame: object) -> None:
    raise TimeoutError("a run takes too long: something loops")


if __name__ == "__main__":
    sys.exit(main())
