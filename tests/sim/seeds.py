"""What both simulators do with seeds: one for a test, many from the command line, two processes for the same one."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

from headway.core.broker import Broker
from headway.core.consumer import Session

ROOT = Path(__file__).parents[2]
STUCK_S = 60


class World(Protocol):
    trail: Any
    """The last events."""
    counts: Any

    def __init__(self, seed: int) -> None: ...

    def run(self, steps: int) -> str:
        """The hash of all that happened."""


def seeds_of_the_day(chosen: Iterable[int]) -> list[int]:
    """These, of which each shows what few others do; or HEADWAY_SEED, or from the first to the last of HEADWAY_SEEDS
    (``1-1000``), as `make soak` has it."""
    if "HEADWAY_SEED" in os.environ:
        return [int(os.environ["HEADWAY_SEED"])]
    if "HEADWAY_SEEDS" in os.environ:
        first, _, last = os.environ["HEADWAY_SEEDS"].partition("-")
        return list(range(int(first), int(last) + 1))
    return list(chosen)


def steps_of_the_day(count: int) -> int:
    return int(os.environ.get("HEADWAY_STEPS", count))


_every = 1 if {"HEADWAY_SEED", "HEADWAY_SEEDS"} & os.environ.keys() else 3


def in_full(turn: int) -> bool:
    """True if all books are gone through after this turn. What is wrong in them mostly stays wrong, so every third turn
    will do for every day. A seed, or many, that somebody asks for are checked after every turn."""
    return turn % _every == 0


_seen: dict[type[World], Counter[str]] = {}
"""What happened in the seeds that ran in this process."""
_runs: Counter[type[World]] = Counter()


def run_seed(kind: type[World], seed: int, steps: int) -> None:
    world = kind(seed)
    try:
        world.run(steps)
    except BaseException:
        print(f"HEADWAY_SEED={seed} HEADWAY_STEPS={steps}: the last events were")
        print("\n".join(world.trail))
        raise
    _seen.setdefault(kind, Counter()).update(world.counts)
    _runs[kind] += 1


def counts_so_far(kind: type[World], seeds: Sequence[int], steps: int) -> Counter[str]:
    """What happened in the seeds that ran before in this process, if they are as many as these; else in these."""
    return _seen[kind] if _runs[kind] >= len(seeds) else counts_of(kind, seeds, steps)


def counts_of(kind: type[World], seeds: Iterable[int], steps: int) -> Counter[str]:
    """What happened in all of them together."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        world = kind(seed)
        world.run(steps)
        counts.update(world.counts)
    return counts


def assert_same_everywhere(kind: type[World], module: str, steps: int = 80) -> None:
    """Also in a process whose sets and dicts of strings are ordered otherwise."""
    salt = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    answer = subprocess.run(
        [sys.executable, "-m", module, "--seeds", "2", "--first", "1001", "--steps", str(steps), "--hash"],
        cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": salt}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert answer.stdout.splitlines()[:2] == [f"{seed} {kind(seed).run(steps)}" for seed in (1001, 1002)]


def _fail(broker: Broker, session: Session, error: Exception) -> None:
    """A broker closes the connection of a client for which records could not be written, and goes on. A world fails."""
    raise error


def main(kind: type[World], module: str, steps: int) -> int:
    """Many seeds. Prints each one that fails, and how to run it again."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--trail", action="store_true", help="print the last events before a failure")
    parser.add_argument("--hash", action="store_true", help="print the hash of each run")
    args = parser.parse_args()
    global _every
    _every = 3 if args.hash else 1
    Broker._delivery_failed = _fail  # type: ignore[method-assign]
    failed = 0
    kinds: Counter[str] = Counter()
    began = time.monotonic()
    signal.signal(signal.SIGALRM, _stuck)
    for seed in range(args.first, args.first + args.seeds):
        signal.alarm(STUCK_S)
        world = None
        try:
            world = kind(seed)
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
