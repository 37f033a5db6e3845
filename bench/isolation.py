"""Isolation, Headway alone: what stuck subscribers cost the healthy ones, and what its own options change about it.

    python -m bench.isolation                      50 healthy, 0 and then 100 stuck, several rounds in turn
    python -m bench.isolation --healthy 100 --stuck 0,100,500 --rounds 5 --seconds 4
    python -m bench.isolation --telemetry          what it costs to write the lake: each round without and with it

The same measurement as ``python -m bench isolation`` (``bench.driver.flood``), with the figures only Headway tells.
What counts are the ratios within one run; absolute figures depend on the machine, and all share its cores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from bench.driver.flood import Crowd, flood
from bench.errors import BenchError
from bench.peers.headway import Headway, ask
from bench.peers.peer import start
from bench.session import raise_file_limit

TOPIC = ("bench", "isolation")
TELEMETRY = """[telemetry]
path = "{{folder}}/lake"
every = "{every}"
"""
DISCONNECT = """[[policy.rule]]
when = {{ blocked_time = "2s" }}
then = "disconnect"
"""


def configured(args: argparse.Namespace, telemetry: bool) -> Headway:
    """Returns Headway as it is compared with its peers, but for the options given."""
    peer = Headway()
    peer.config = peer.config.replace('memory = "32MB"', f'memory = "{args.memory}"')
    peer.config += DISCONNECT if args.disconnect else ""
    peer.config += TELEMETRY.format(every=args.every) if telemetry else ""
    return peer


def one_round(args: argparse.Namespace, stuck: int, telemetry: bool = False) -> dict[str, Any]:
    """Measures once, with a broker of its own."""
    with start(configured(args, telemetry)) as running:
        figures = flood(running, Crowd(TOPIC, [TOPIC], args.healthy, stuck, args.bytes), args.seconds)
        told = ask(running, "/v1/broker")
    return figures | {
        "stuck": stuck, "telemetry": telemetry, "pool_peak_bytes": told["pools"][0]["memory_peak_bytes"],
        "disk_peak_bytes": told["pools"][0]["disk_peak_bytes"], "longest_turn_ms": told["longest_turn_ms"],
        "rows": told.get("telemetry", {}).get("written_rows", 0),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--healthy", type=int, default=50)
    parser.add_argument("--stuck", default="0,100", help="numbers of stuck subscribers, compared with the first")
    parser.add_argument("--bytes", type=int, default=128, help="payload bytes")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", default="32MB", help="the pool's memory")
    parser.add_argument("--disconnect", action="store_true", help="disconnect who takes nothing for 2 s")
    parser.add_argument("--telemetry", action="store_true", help="each round once without and once with telemetry")
    parser.add_argument("--every", default="2s", help="how often the lake is written to")
    parser.add_argument("--json", type=Path, help="write all rounds here")
    args = parser.parse_args()
    numbers = [int(n) for n in args.stuck.split(",")]
    raise_file_limit()
    rounds = []
    for number in range(args.rounds):
        for stuck in numbers:
            print(f"round {number + 1}/{args.rounds}, {stuck} stuck ...", file=sys.stderr, flush=True)
            pair = [False, True] if number % 2 == 0 else [True, False]  # neither of them always comes second
            rounds += [one_round(args, stuck, telemetry) for telemetry in (pair if args.telemetry else [False])]
    if args.json:
        args.json.write_text(json.dumps(rounds, indent=1))
    report(args, numbers, [row for row in rounds if not row["telemetry"]])
    if args.telemetry:
        compare(numbers, rounds)


def compare(numbers: list[int], rounds: list[dict[str, Any]]) -> None:
    """Prints the rate with telemetry as a share of that without, round by round; also per second of the broker's CPU,
    which depends less on who else wants the machine."""
    print(f"\n{'stuck':>6} {'with/without':>13} {'per CPU s':>10} {'rows':>6} {'turn ms':>9} {'with':>6}  each round")
    for stuck in numbers:
        off, on = ([row for row in rounds if row["stuck"] == stuck and row["telemetry"] is t] for t in (False, True))
        ratios = [b["deliveries_per_s"] / a["deliveries_per_s"] for a, b in zip(off, on, strict=True)]
        per_cpu = [
            ratio * a["broker_cpu"] / b["broker_cpu"] for ratio, a, b in zip(ratios, off, on, strict=True)
        ]
        turns = [statistics.median(row["longest_turn_ms"] for row in rows) for rows in (off, on)]
        print(f"{stuck:>6} {statistics.median(ratios):>13.3f} {statistics.median(per_cpu):>10.3f} "
              f"{statistics.median(row['rows'] for row in on):>6.0f} {turns[0]:>9.1f} {turns[1]:>6.1f}  "
              f"{' '.join(f'{ratio:.2f}' for ratio in ratios)}")


def report(args: argparse.Namespace, numbers: list[int], rounds: list[dict[str, Any]]) -> None:
    """Prints medians, and the ratio to the first number of stuck subscribers."""
    def middle(stuck: int, what: str) -> float:
        return float(statistics.median(row[what] for row in rounds if row["stuck"] == stuck))

    first = middle(numbers[0], "deliveries_per_s")
    columns = [
        ("published/s", "published_per_s", 1, 0), ("lost", "lost", 1, 0), ("peak MB", "peak_bytes", 1e6, 0),
        ("idle MB", "idle_bytes", 1e6, 0), ("disk MB", "disk_peak_bytes", 1e6, 0), ("CPU", "broker_cpu", 1, 2),
        ("turn ms", "longest_turn_ms", 1, 1),
    ]  # fmt: skip
    print(f"{args.healthy} healthy subscribers, {args.bytes} B payload, medians of {args.rounds} x {args.seconds:g} s")
    print(f"{'stuck':>6} {'deliveries/s':>14} {'ratio':>6} " + " ".join(f"{title:>11}" for title, *_ in columns))
    for stuck in numbers:
        rate = middle(stuck, "deliveries_per_s")
        rest = (f"{middle(stuck, what) / unit:>11,.{digits}f}" for _, what, unit, digits in columns)
        print(f"{stuck:>6} {rate:>14,.0f} {rate / first:>6.2f} " + " ".join(rest))


if __name__ == "__main__":
    try:
        main()
    except BenchError as error:
        sys.exit(f"bench: {error}")
