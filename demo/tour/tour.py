"""``python -m demo.tour``: for data engineers. Traffic is recorded; Spark reads it as a batch and as a stream; a view
is kept up to date; the records are archived; and the telemetry says which policy would have been best.

Each step is a command that anybody would use, and is shown as such. All that it makes is in one folder (--out): the
broker's config and journal, so that the broker can be started again with what it recorded, the archive, the telemetry
lake and the pictures. What a tour before left there is replaced. Ctrl-C ends it; nothing is left running.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
from rich.console import Console, RenderableType
from rich.text import Text

from demo.analysis import CANDIDATES, hindrance
from demo.broker import BrokerProcess, config_text
from demo.cast import CONFIRMED, CONSUMERS, PUBLISHER
from demo.company import Actor, ActorFailed, Company, await_all
from demo.ending import EXIT_CANNOT, run_to_its_end
from demo.live import VIEW, Views, play_view
from demo.screen import Screen
from headway.server.loop import called_as

OUT = Path("headway-tour")
SECONDS = 40.0
READY_TIMEOUT_S = 60.0
PLAYS = ("board-EWR", "desk-US", "frozen-EWR", "modem-JFK", "map")
"""These of the demo's consumers are enough for the lab, and leave two cores room for Spark."""
ANSWER = Path(__file__).parents[2] / "examples" / "spark" / "answer.py"
MADE = (
    "ready.json", "journal", "lake", "archive", "answer", "health", "lab", "views", "broker.log", "views.log",
    "spark.log",
)  # fmt: skip


class StepFailed(Exception):
    """A command ended with an error, which it has said itself."""


class Recording:
    """The traffic while it is recorded."""

    def __init__(self, publisher: Actor) -> None:
        self._publisher = publisher

    def line(self) -> str:
        return f"{self._publisher.last.moment[:10]}: {self._publisher.last.records:,} flights are recorded"

    def draw(self, width: int) -> RenderableType:
        return Text(self.line(), style="cyan")


class Tour:
    def __init__(self, console: Console, plain: bool, folder: Path, seconds: float) -> None:
        self.console = console
        self.plain = plain
        self.folder = folder
        self.seconds = seconds
        self.company = Company()
        self.steps = 0

    def run(self) -> None:
        """Raises StepFailed, BrokerFailed, ActorFailed, ViewFailed."""
        for name in MADE:
            made = self.folder / name
            shutil.rmtree(made) if made.is_dir() else made.unlink(missing_ok=True)
        with ExitStack() as stack:
            self._head("A broker that records", "its config is demo.toml")
            broker = BrokerProcess(self.folder, tour_config(self.folder))
            stack.callback(broker.stop)
            stack.callback(self.company.close)
            recorded = self._traffic(broker)
            self._head("Batch and stream", f"with what is in {ANSWER.name}: the first answer, then all there is")
            self._do([sys.executable, str(ANSWER), "--admin", broker.admin, "--out", str(self.folder / "answer")])
            self._head("A view", "kept up to date while a second year of flights comes; anybody may subscribe to it")
            self._view(broker, recorded)
            self._head("An archive", "plain Parquet, for good, whatever the broker deletes")
            self._headway("pipeline", "archive", "-c", str(broker.config), "--admin", broker.admin, "--out",
                          str(self.folder / "archive"), "flights/#")  # fmt: skip
        self._head("Who was slow, and which policy is best", "from the broker's telemetry, the lake")
        lake = str(self.folder / "lake")
        self._headway("pipeline", "health", "--lake", lake, "--out", str(self.folder / "health"))
        self._headway("lab", "run", "--lake", lake, "--candidates", str(CANDIDATES), "--out", str(self.folder / "lab"))
        self._close()

    def _traffic(self, broker: BrokerProcess) -> int:
        """A year of flights past consumers of whom some are slow. Returns how many were published."""
        with Screen(self.console, self.plain) as screen:
            screen.say("starting consumers, and reading a year of flights ...")
            count = self._play(broker, screen)
        self.console.print(f"{count:,} flights are recorded.")
        return count

    def _play(self, broker: BrokerProcess, screen: Screen) -> int:
        place = {"host": broker.host, "port": broker.port}
        part = msgspec.structs.replace(PUBLISHER, **place, seconds=self.seconds, confirmed=CONFIRMED)
        publisher = self.company.hire(part, "publisher")
        consumers = [
            self.company.hire(msgspec.structs.replace(part, **place), "consumer")
            for part in CONSUMERS if part.name in PLAYS
        ]  # fmt: skip
        everybody = [publisher, *consumers]

        def check() -> None:
            broker.check()
            for actor in everybody:
                actor.check()

        self._wait(lambda: all(actor.ready for actor in everybody), READY_TIMEOUT_S, check, "everybody is ready")
        picture = Recording(publisher)

        def look() -> None:
            check()
            screen.show(picture)

        publisher.order("go")
        self._wait(lambda: publisher.done is not None, self.seconds * 5 + 60.0, look, "the year is over")
        self.company.stop(consumers)
        assert publisher.done is not None
        return publisher.done.records

    def _wait(self, done: Callable[[], bool], limit_s: float, look: Callable[[], None], what: str) -> None:
        if not await_all(done, limit_s, look):
            raise ActorFailed(f"after {limit_s:.0f} s it is not so that {what}")

    def _view(self, broker: BrokerProcess, recorded: int) -> None:
        self.console.print(Text(VIEW.partition("\n\n")[2].strip(), style="dim"))
        views = Views(self.folder, broker)
        try:
            with Screen(self.console, self.plain) as screen:
                if not play_view(self.console, screen, self.company, broker, views, recorded):
                    raise StepFailed
        finally:
            views.stop()

    def _head(self, title: str, more: str) -> None:
        self.steps += 1
        self.console.print()
        self.console.print(f"[bold]{self.steps}. {title}[/bold] ({more})", highlight=False)

    def _headway(self, *words: str) -> None:
        self._do([*called_as(), *words])

    def _do(self, command: list[str]) -> None:
        """Runs a command. Spark's own words go to spark.log, and are shown when it fails."""
        self.console.print(Text(f"$ {shlex.join(command)}", style="dim"), soft_wrap=True)
        log = self.folder / "spark.log"
        own = command[0] == sys.executable and command[1] == str(ANSWER)
        with log.open("ab") as file:
            begin = file.tell()
            code = subprocess.run(command, stderr=file if own else None, check=False).returncode
        if code and own:
            print(log.read_bytes()[begin:][-4000:].decode(errors="replace"), file=sys.stderr)
        if code:
            raise StepFailed

    def _close(self) -> None:
        self.console.print()
        self.console.print("[bold]Look at[/bold]")
        for name, what in (
            ("answer/delays.html", "the stream's answer"), ("health/report.html", "who was slow, and what it cost"),
            ("lab/report.html", "what other policies would have done"), ("archive/", "the records, as Parquet"),
        ):  # fmt: skip
            self.console.print(f"  {self.folder / name}: {what}", highlight=False, soft_wrap=True)
        again = shlex.join([*called_as(), "serve", "-c", str(self.folder / "demo.toml")])
        self.console.print(Text(f"The broker again, with all it recorded: {again}"), soft_wrap=True)


def tour_config(folder: Path) -> str:
    """The demo's config, with recorded flights and a view of them."""
    text = config_text(folder / "spill", folder / "lake")
    keyed = '[[topic]]\nfilter = "flights/#"\nkey = "/tailnum"\n'
    assert keyed in text
    view = VIEW.replace('[[topic]]\nfilter = "flights/#"\nkeep = "1d"\n', "")
    return text.replace(keyed, keyed + 'keep = "1d"\n') + f'\n[journal]\npath = "{folder / "journal"}"\n{view}'


def main(args: Sequence[str]) -> int:
    """0: all steps went well. 2: one did not, and has said why. 130: ended early."""
    parser = argparse.ArgumentParser(
        prog="python -m demo.tour", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=OUT, help="the folder for all of it (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for the year of flights (default: %(default)g)")
    options = parser.parse_args(list(args))
    console = Console()
    if obstacle := hindrance():
        print(f"tour: {obstacle}", file=sys.stderr)
        return EXIT_CANNOT
    return run_to_its_end("tour", options.out, lambda: _show(options, console))


def _show(options: argparse.Namespace, console: Console) -> int:
    began = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        Tour(console, not console.is_terminal, options.out.resolve(), options.seconds).run()
    except StepFailed:
        return EXIT_CANNOT
    console.print(f"That took {time.monotonic() - began:.0f} s.")
    return 0
