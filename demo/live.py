"""The demo's second part: the year once more, and a view of it that Spark keeps up to date.

It has a broker of its own, which records the flights. ``headway pipeline views`` runs over that broker's config as it
would over anybody's; the board is one more MQTT client. On a machine with few cores Spark and the nine consumers of the
first part would hold each other up, so this comes after it.
"""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import msgspec
from rich.console import Console, Group, RenderableType
from rich.text import Text

from demo.actors.carriers import TOPIC, Board
from demo.broker import BrokerProcess, die_with_the_demo
from demo.cast import PUBLISHER
from demo.company import Actor, ActorFailed, Company, await_all
from demo.screen import Screen
from headway.core.base import format_duration
from headway.server.loop import called_as

SECONDS = 30.0
START_S = 300.0
CATCH_UP_S = 30.0
STOP_S = 40.0
NAME = "delay_by_carrier"
VIEW = f"""\
[[topic]]
filter = "flights/#"
keep = "1d"

[tables.flights]
schema = "dep_delay INT, sent_s DOUBLE"

[views.{NAME}]
sql = '''
SELECT split(_topic, '/')[2] AS carrier, count(*) AS flights,
       round(avg(dep_delay), 1) AS delay_min, max(sent_s) AS sent_s
FROM flights GROUP BY carrier'''
topic = "{TOPIC}"
key = "carrier"
"""
CONFIG = f"""\
[server]
admin = "http://127.0.0.1:0"

[listeners.mqtt]
url = "mqtt://127.0.0.1:0"

[journal]
path = "JOURNAL_PATH"

{VIEW}"""


class ViewFailed(Exception):
    """``headway pipeline views`` ended; the text is what it said."""


class Views:
    """``headway pipeline views`` over a broker's config."""

    def __init__(self, folder: Path, broker: BrokerProcess) -> None:
        self._log_path = folder / "views.log"
        words = ["pipeline", "views", "--config", str(broker.config), "--admin", broker.admin]
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [*called_as(), *words, "--checkpoint", str(folder / "views")], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True, preexec_fn=die_with_the_demo,
            )  # fmt: skip

    def check(self) -> None:
        """Raise if it has ended."""
        if self._process.poll() is not None:
            raise ViewFailed(self._said().strip().splitlines()[-1] if self._said().strip() else "it said nothing")

    @property
    def running(self) -> bool:
        self.check()
        return f"{NAME} to {TOPIC}: running" in self._said()

    def _said(self) -> str:
        return self._log_path.read_text(errors="replace")

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Live:
    """The live view while the demo runs."""

    def __init__(self, publisher: Actor, board: Board, total: int) -> None:
        self._publisher = publisher
        self._board = board
        self._total = total
        self._start_s = time.monotonic()

    def line(self) -> str:
        sent, seen = self._publisher.last.records, self._board.flights
        rows = self._board.latest()
        worst = ", ".join(f"{row.carrier} {row.delay_min or 0.0:.1f} min" for row in rows[:3]) or "nobody"
        elapsed = time.monotonic() - self._start_s
        return (
            f"{elapsed:4.0f} s  {self._publisher.last.moment[:10]}  {sent:,} of {self._total:,} flights, {seen:,} of "
            f"them in the view  latest: {worst}"
        )

    def draw(self, width: int) -> RenderableType:
        return Group(Text(self.line(), style="cyan"), self._board.table(), Text("Ctrl-C ends it", style="dim"))


def run_view(console: Console, screen: Screen, folder: Path) -> bool:
    """Whether it came to the same number of flights as were published. Whatever happens, what was started is ended.
    Raises BrokerFailed, ActorFailed, ViewFailed."""
    console.print()
    console.print("[bold]Delay by carrier, live[/bold] (the year once more; Spark keeps a query up to date)")
    console.print(Text(VIEW.partition("\n\n")[2].strip(), style="dim"))
    company = Company()
    broker = BrokerProcess(folder, CONFIG.replace("JOURNAL_PATH", str(folder / "journal")))
    try:
        views = Views(folder, broker)
        try:
            with screen:
                return play_view(console, screen, company, broker, views)
        finally:
            views.stop()
    finally:
        try:
            company.close()
        finally:
            broker.stop()


def play_view(
    console: Console, screen: Screen, company: Company, broker: BrokerProcess, views: Views, recorded: int = 0
) -> bool:
    """Whether the view comes to as many flights as are published, and were ``recorded`` before. Raises BrokerFailed,
    ActorFailed, ViewFailed."""
    screen.say("starting Spark ...")
    part = msgspec.structs.replace(PUBLISHER, host=broker.host, port=broker.port, seconds=SECONDS)
    publisher = company.hire(part, "publisher")

    def check() -> None:
        broker.check()
        publisher.check()
        views.check()

    if not await_all(lambda: publisher.ready is not None and views.running, START_S, check):
        raise ActorFailed(f"the view was not there after {START_S:.0f} s")
    assert publisher.ready is not None
    board = Board(broker.host, broker.port)
    live = Live(publisher, board, publisher.ready.total)

    def look() -> None:
        check()
        screen.show(live)

    try:
        publisher.order("go")
        if not await_all(lambda: publisher.done is not None, SECONDS * 1.5 + 30.0, look):
            raise ActorFailed("the publisher could not send all flights in time")
        assert publisher.done is not None
        sent = publisher.done.records + recorded
        came = await_all(lambda: board.flights == sent, CATCH_UP_S, look)
    finally:
        board.close()
    screen.close()
    console.print(board.table())
    console.print(_words(board, sent, came))
    return came


def _words(board: Board, sent: int, came: bool) -> Text:
    if not came:
        return Text(f"The view has {board.flights:,} of {sent:,} flights.", style="bold red")
    ages = ", ".join(f"{word} {format_duration(round(board.age_s(share), 1))}"
                     for word, share in (("median", 0.5), ("at most", 1.0)))  # fmt: skip
    return Text(
        f"All {sent:,} flights are in the view. What it showed was as of so long ago: {ages}.", style="bold green"
    )
