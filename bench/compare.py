"""This checkout beside another commit: did anything get slower?

    make compare REV=main                          before each landing (about six minutes)
    python -m bench.compare 4f3d37a                the same
    python -m bench.compare main --rows start,qos1 only rows with one of these in their name
    python -m bench.compare main --json FILE       every pair's figures go there too

The other commit's broker runs from a git worktree in a temporary folder, with the packages of this checkout's venv;
clients, workloads and configuration are this checkout's for both. In a round, a row starts both brokers and gives them
short measurements in turn: other, this, this, other, after one of each that does not count, and in the next round the
other way round. A row's ratio is the median over all pairs and above 1 where this checkout is better, for times too. A
row below 0.95 is measured again, up to six more rounds, before it counts as slower. Change nothing in this checkout
while it runs. Other work on the machine costs precision: the spread shows how much.
"""

from __future__ import annotations

import argparse
import compileall
import copy
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench.errors import BenchError
from bench.machine import machine, machine_line
from bench.peers.headway import Headway
from bench.peers.headway_amqp import HeadwayAmqp
from bench.peers.peer import Running, start
from bench.session import raise_file_limit
from bench.tables import SHOWN
from bench.workloads.every import EVERY as WORKLOADS
from bench.workloads.fanout import sized
from bench.workloads.workload import Case

BOUND = 0.95
SECONDS, ROUNDS, MORE_ROUNDS = 0.8, 2, 6
"""One measurement's length, below the second from which a workload warms the broker up itself; how many rounds each row
has, and how many more it has while its ratio is below the bound."""
ORDER = (0, 1, 1, 0)
"""Which of the two is measured: the other commit, this checkout; in every second round the other way round. Who is
measured twice in a row pays for what it has left to do, such as compacting its journal: a tenth in the persistent row.
"""
NAMES = ("the other commit", "this checkout")
ROOT = Path(__file__).parents[1]
START = "start: until serve accepts"


class Figure(NamedTuple):
    """A line of the table. ``key``: the workload's figure; ``better``: high or low."""

    title: str
    key: str
    unit: str
    better: str


class Row(NamedTuple):
    """A measurement: a case of a workload, and which of its figures are compared."""

    workload: str
    case: Case
    figures: Sequence[Figure]
    peer: Headway = Headway()

    @property
    def title(self) -> str:
        return self.figures[0].title


def rows(tiny: bool) -> list[Row]:
    """Returns all rows; the last has nothing but the start."""

    def rate(title: str, key: str) -> list[Figure]:
        return [Figure(title, key, "rate", "high")]

    flood, acked = "deliveries_per_s", "acknowledged_per_s"
    few = (1, 5) if tiny else (1, 50, 100, 1_000)
    alone, many = WORKLOADS["in-turn"].cases(tiny)
    settled = [case for case in WORKLOADS["acknowledged"].cases(tiny) if case.values["qos"] == 1 or "50" in case.name]
    kept = WORKLOADS["persistent"].cases(tiny)[-1]
    percentiles = [Figure(f"one message by itself, {name}", f"{name}_ns", "ns", "low") for name in ("p50", "p99")]
    stuck = next(case for case in WORKLOADS["isolation"].cases(tiny) if case.values["stuck"] in (3, 100))
    beside = f"QoS 0 to {stuck.values['healthy']} beside {stuck.values['stuck']} stuck"
    publishers = f"{many.values['publishers']} publishers in turn, to {many.values['subscribers']}"
    return [
        *(Row("fanout", sized(number, 128), rate(f"QoS 0 to {number:,}", flood)) for number in few),
        Row("isolation", stuck, rate(beside, flood)),
        Row("fanout", sized(few[1], 16_384), rate(f"QoS 0 to {few[1]}, 16 KiB", flood)),
        Row("in-turn", many, rate(publishers, "published_per_s")),
        *(Row("acknowledged", case, rate(case.name, acked)) for case in settled),
        Row("in-turn", alone, percentiles),
        Row("workqueue", WORKLOADS["workqueue"].cases(tiny)[0], rate("AMQP queue of four", acked), HeadwayAmqp()),
        Row("persistent", kept, rate(f"persistent, {kept.name}", "confirmed_per_s"), HeadwayAmqp().durable()),
        Row("", Case("", {}), [Figure(START, "start_s", "s", "low")]),
    ]


class Compared:
    """All pairs of one row: the figures of the other commit and of this one, in the order they were measured."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.pairs: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.error = ""
        self.has_failed = False
        """Whether the error is this checkout's."""

    def ratios(self, figure: Figure, per_cpu: bool = False) -> list[float]:
        """Returns one ratio per pair, above 1 where this checkout is better; of the figure, or per second of the
        broker's CPU."""
        key = figure.key.replace("_per_s", "_per_cpu_s") if per_cpu else figure.key
        both = [(other[key], this[key]) for other, this in self.pairs]
        return [this / other if figure.better == "high" else other / this for other, this in both]

    @property
    def is_slower(self) -> bool:
        return any(statistics.median(self.ratios(figure)) < BOUND for figure in self.row.figures if self.pairs)


def one_round(compared: Compared, other: Path, seconds: float, starts: Compared, first: int) -> None:
    """Starts both brokers and measures them in turn, beginning with ``first`` (0: the other commit's). Where one of
    them cannot do what the row asks for, the row has an error. Raises BenchError where one does not start."""
    row = compared.row
    peers = [copy.copy(row.peer), row.peer]
    peers[0].source = other
    with ExitStack() as stack:
        running: dict[int, Running] = {}
        for which in (first, 1 - first):
            try:
                running[which] = stack.enter_context(start(peers[which]))
            except BenchError as error:
                raise BenchError(f"{NAMES[which]}: {error}") from None
        starts.pairs.append(({"start_s": running[0].start_s}, {"start_s": running[1].start_s}))
        if not row.workload:
            return
        workload = WORKLOADS[row.workload]
        found: list[list[dict[str, Any]]] = [[], []]
        for which in (0, 1, *(first ^ one for one in ORDER)):
            try:
                found[which].append(workload.run(running[which], row.case, seconds))
            except (BenchError, OSError) as error:
                compared.error = f"{NAMES[which]}: {' '.join(str(error).split())}"
                compared.has_failed |= which == 1
                return
        compared.pairs += list(zip(found[0][1:], found[1][1:], strict=True))


@contextmanager
def checked_out(revision: str) -> Iterator[tuple[str, Path]]:
    """Puts a commit into a worktree in a temporary folder, for as long as the block; yields its short name and its
    source folder. Raises BenchError where there is no such commit."""
    try:
        commit = git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    except BenchError:
        raise BenchError(f"there is no commit {revision!r} here; say which one: make compare REV=main") from None
    with tempfile.TemporaryDirectory(prefix="bench-compare-", ignore_cleanup_errors=True) as folder:
        tree = Path(folder, "other")
        try:
            git("worktree", "add", "--detach", "--quiet", str(tree), commit)
            if not (tree / "src/headway").is_dir():
                raise BenchError(f"{revision} has no src/headway, so there is no broker to compare with")
            yield commit[:9], tree / "src"
        finally:
            with suppress(BenchError):
                git("worktree", "remove", "--force", str(tree))


def git(*arguments: str) -> str:
    """Returns what git says about this checkout. Raises BenchError with its last line where it fails."""
    command = ["git", "-C", str(ROOT), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    except FileNotFoundError:
        raise BenchError("git is not installed") from None
    if done.returncode:
        raise BenchError(f"git {arguments[0]}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
    return done.stdout.strip()


def compare(
    chosen: Sequence[Row], other: Path, seconds: float, rounds: int, more: int, tell: Callable[[str, int, int], Any]
) -> list[Compared]:
    """Measures all rows, round by round, and then those that seem slower again."""
    every = [Compared(row) for row in chosen]
    starts = next((one for one in every if not one.row.workload), Compared(rows(False)[-1]))
    done, total = 0, rounds * len(every)

    def measure(one: Compared, number: int) -> None:
        nonlocal done
        tell(f"round {number + 1}: {one.row.title}", done, total)
        one_round(one, other, seconds, starts, number % 2)
        done += 1

    for number in range(rounds):
        for one in every:
            if not one.error:
                measure(one, number)
    for number in range(rounds, rounds + more):
        slower = [one for one in every if one.is_slower and not one.error]
        total += len(slower)
        for one in slower:
            measure(one, number)
    tell("", done, total)
    return every


def table(every: Sequence[Compared], commit: str) -> Table:
    """Returns medians, and the ratio with its spread: the middle half of all pairs', and the extremes. The ratio per
    second of the broker's CPU depends less on what else the machine does."""
    shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for head in ("", commit, "this", "ratio", "middle half", "all", "pairs", "per CPU s", ""):
        shown.add_column(head, justify="right" if head else "left", no_wrap=True)
    for one in every:
        for figure in one.row.figures:
            if not one.pairs:
                shown.add_row(figure.title, "–", "–", "–", "", "", "0", "", one.error)
                continue
            ratios = sorted(one.ratios(figure))
            middles = [statistics.median(pair[which][figure.key] for pair in one.pairs) for which in (0, 1)]
            low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
            middle = statistics.median(ratios)
            is_slower = middle < BOUND
            per_cpu = f"{statistics.median(one.ratios(figure, True)):.2f}" if figure.better == "high" else ""
            remark = "; ".join(("slower",) * is_slower + (one.error,) * bool(one.error))
            shown.add_row(
                figure.title, *(SHOWN[figure.unit](value) for value in middles), f"{middle:.2f}",
                f"{low:.2f} … {high:.2f}", f"{ratios[0]:.2f} … {ratios[-1]:.2f}", str(len(ratios)),
                per_cpu, remark, style="bold red" if is_slower else None,
            )  # fmt: skip
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, 1 when a row is slower, 2 when this cannot be measured, 130 when interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revision", nargs="?", default="", help="commit, branch or tag to compare with")
    parser.add_argument("--rows", default="", metavar="TEXT", help="only rows with one of these in their name (a,b)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every pair's figures go here")
    parser.add_argument("--tiny", action="store_true", help="small sizes, one round of 0.2 s: does it work?")
    given = parser.parse_args(arguments)
    try:
        return _compare(given)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("bench: interrupted; nothing is left running", file=sys.stderr)
        return 130


def _compare(given: argparse.Namespace) -> int:
    words = [word.strip() for word in given.rows.lower().split(",")]
    chosen = [row for row in rows(given.tiny) if any(word in row.title.lower() for word in words)]
    if not chosen:
        raise BenchError(f"no row has {given.rows!r} in its name; there are: {'; '.join(r.title for r in rows(False))}")
    raise_file_limit()
    sizes = (0.2, 1, 0) if given.tiny else (SECONDS, ROUNDS, MORE_ROUNDS)
    errors, began = Console(stderr=True), time.monotonic()
    print(machine_line(machine()), flush=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with checked_out(given.revision) as (commit, other), Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task("compiling", total=None)
        for source in (ROOT / "src", other):
            compileall.compile_dir(source, quiet=2)

        def tell(text: str, done: int, total: int) -> None:
            bar.update(task, description=text, completed=done, total=total)

        every = compare(chosen, other, *sizes, tell)
    console = Console() if sys.stdout.isatty() else Console(width=200)
    console.print(table(every, commit), highlight=False)
    slower = [one for one in every if one.is_slower or one.has_failed]
    took = f"{time.monotonic() - began:.0f} s"
    if given.json is not None:
        document = [{"row": one.row.title, "pairs": one.pairs, "error": one.error} for one in every]
        given.json.write_text(json.dumps({"commit": commit, "machine": machine(), "rows": document}, indent=1) + "\n")
    if slower:
        print(f"slower than {commit} (below {BOUND}): {'; '.join(one.row.title for one in slower)} ({took})")
        return 1
    print(f"nothing is slower than {commit} (all ratios are {BOUND} or more; {took})")
    return 0


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    sys.exit(main())
