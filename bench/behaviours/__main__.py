"""The labelled set of consumers, judged by many policies side by side.

    python -m bench.behaviours                                one seed, four minutes, all policies
    python -m bench.behaviours --seed 1,2,3 --json judge.json --plot docs/plots/judgement.svg
    python -m bench.behaviours --policies my.toml             its [[policy]] tables in the place of Headway's default
    python -m bench.behaviours --trials more.toml             its [[trial]] (or [[policy]]) tables beside the others
    python -m bench.behaviours --only stuck,modem             the kinds with these words in their names
    python -m bench.behaviours --only field:                  the second set: kinds that another examiner thought of
    python -m bench.behaviours --remote                       the broker judges all as if they were on other hosts
    python -m bench.behaviours --lake lakes                   the brokers' telemetry is kept, in lakes/seed-1
    python -m bench.behaviours --lake lakes --pauses 20       and the broker is late twenty times
    python -m bench.behaviours --lab lakes                    no run: how far the lab agrees with these brokers
    python -m bench.behaviours --read one.json --read two.json --page docs/JUDGEMENT.md     the tables of these runs

How to read the figures: docs/JUDGEMENT.md.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.errors import BenchError


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise BenchError(f"{message}; see python -m bench.behaviours --help")


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, 1 when a consumer of the set failed, 2 for a mistake of the user, 130 when interrupted."""
    try:
        return _judge(list(sys.argv[1:] if arguments is None else arguments))
    except BenchError as error:
        print(f"judge: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("judge: interrupted; nothing is left running", file=sys.stderr)
        return 130


def _judge(arguments: list[str]) -> int:
    parser = _Parser(prog="python -m bench.behaviours", description=__doc__,
                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--seed", default="1", help="a number, or some with commas between, one run each (1)")
    parser.add_argument("--minutes", type=float, default=4.0, help="how long each run takes (4)")
    parser.add_argument("--policies", type=Path, help="a config whose policies are judged in the place of the default")
    parser.add_argument("--trials", type=Path, action="append", default=[], help="a file with more policies")
    parser.add_argument("--only", default="", help="only kinds with such a word in their names; else the first set")
    parser.add_argument("--remote", action="store_true", help="judge clients as if they were on other hosts")
    parser.add_argument("--pauses", type=int, default=1, help="how often the broker is stopped for a moment (1)")
    parser.add_argument("--lake", type=Path, metavar="FOLDER", help="what the brokers record goes here")
    parser.add_argument("--lab", type=Path, metavar="FOLDER", help="no run: replay the lakes that are there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="labels, verdicts and scores go here")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="an SVG file of the scores")
    parser.add_argument("--page", type=Path, metavar="FILE", help="the tables go between the marks on this page")
    parser.add_argument("--read", type=Path, action="append", metavar="FILE", help="no run: count such a JSON anew")
    parser.add_argument("--show", default="", metavar="POLICY", help="all that is said by this policy")
    given = parser.parse_args(arguments)
    try:
        seeds = [int(text) for text in given.seed.split(",")]
    except ValueError:
        raise BenchError(f"--seed: numbers, not {given.seed!r}") from None

    if given.lab is not None:
        from bench.behaviours.lab import replay

        return replay(given.lab, given.show)
    from bench.behaviours.session import session

    return asyncio.run(session(given, seeds))


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    sys.exit(main())
