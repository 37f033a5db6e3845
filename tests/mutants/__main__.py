"""Do the tests notice faults? ``python -m tests.mutants --count 100 --seed 1``: see change.py and run.py."""

from __future__ import annotations

import argparse
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.change import Change, changes, chosen_of
from tests.mutants.run import SOURCE, Copy, Outcome

CORE = SOURCE / "headway" / "core"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants",
                                     description="Faults in the core: are they noticed?")  # fmt: skip
    parser.add_argument("--count", type=int, default=100, help="changes to make, one at a time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--after", type=int, default=0, help="leave out so many of them: they were made before")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--survivors-max", type=int, default=10, help="exit code 1 if more survive")
    parser.add_argument("--file", default="*.py", help="only in files of the core that this pattern matches")
    parser.add_argument("--list", action="store_true", help="print the changes and make none")
    asked = parser.parse_args()
    all_there_are = [change for file in sorted(CORE.rglob(asked.file)) for change in changes(file)]
    chosen = chosen_of(all_there_are, asked.count, asked.seed)[asked.after :]
    print(f"seed {asked.seed}: {len(chosen)} of {len(all_there_are)} changes", flush=True)
    if asked.list:
        print(*chosen, sep="\n")
        return 0
    outcomes = _make(chosen, asked.jobs)
    survivors = [outcome for outcome in outcomes if not outcome.noticed_by]
    print(f"{len(survivors)} of {len(outcomes)} survived")
    for outcome in survivors:
        print(f"  {outcome.change}")
    return 1 if len(survivors) > asked.survivors_max else 0


def _make(chosen: list[Change], jobs: int) -> list[Outcome]:
    with tempfile.TemporaryDirectory(prefix="headway-mutants-") as folder, ThreadPoolExecutor(jobs) as workers:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(jobs):
            place = Path(folder) / str(number)
            place.mkdir()
            copies.put(Copy(place))
        first = copies.get()
        usual = first.usual()
        copies.put(first)
        print("without a change all tests pass", flush=True)

        def one(change: Change) -> Outcome:
            copy = copies.get()
            try:
                return copy.outcome(change, usual)
            finally:
                copies.put(copy)

        outcomes = []
        for done in as_completed([workers.submit(one, change) for change in chosen]):
            outcome = done.result()
            outcomes.append(outcome)
            verdict = outcome.noticed_by or "SURVIVED"
            print(f"{len(outcomes):4}  {outcome.seconds:4.0f} s  {outcome.change}\n      {verdict}", flush=True)
        return outcomes


if __name__ == "__main__":
    sys.exit(main())
