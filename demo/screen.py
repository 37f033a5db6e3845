"""The demo's screen: a live table on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from demo.broker import BrokerProcess
from demo.company import Actor
from demo.delays import Delays
from demo.judgement import deed
from headway.core.base import format_size

PLAIN_EVERY_S = 5.0
REFRESH_PER_S = 4
WIDE = 120
"""Narrower terminals do without the column that says who does what."""
STYLES = {"ok": "green", "behind": "yellow", "away": "red", "gone": "red", "slow": "red"}


class Rates:
    """Records per second of each actor, from one look to the next."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, int, float]] = {}

    def of(self, name: str, records: int, now: float) -> float:
        since, before, rate = self._seen.get(name, (now, records, 0.0))
        if now - since >= 1.0 or name not in self._seen:
            rate = (records - before) / (now - since) if now > since else 0.0
            self._seen[name] = (now, records, rate)
        return rate


class Dashboard:
    """All that is shown, as of the last look."""

    def __init__(
        self, publisher: Actor, consumers: list[Actor], total: int, seconds: float, delays: Delays
    ) -> None:
        self.delays = delays
        self.publisher = publisher
        self.consumers = consumers
        self.total = total
        self.seconds = seconds
        self.broker: dict[str, Any] = {}
        self.states: dict[str, dict[str, Any]] = {}
        """By client: the last the broker said of it."""
        self.connected: set[str] = set()
        self.rates = Rates()
        self.start_s = time.monotonic()

    def update(self, broker: BrokerProcess) -> None:
        """Ask the broker how things are. Where it does not answer, what it said last stands."""
        self.broker = broker.ask("/v1/broker") or self.broker
        said = broker.ask("/v1/consumers")
        if said is None:
            return
        self.connected = {state["client"] for state in said["consumers"]}
        self.states.update({state["client"]: state for state in said["consumers"]})
        for name in self.states.keys() - self.connected:
            verdicts = broker.why(name)
            if verdicts:
                self.states[name]["last_verdict"] = verdicts[-1]

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.start_s

    @property
    def date(self) -> str:
        moment = self.publisher.last.moment
        return f"{datetime.fromisoformat(moment):%d %b %Y}" if moment else ""

    def state(self, actor: Actor) -> str:
        name = actor.part.name
        if name not in self.connected:
            return "gone" if name in self.states else "-"
        return str(self.states[name]["state"])

    def slow(self) -> list[str]:
        """Consumers that are not as they should be, and their states."""
        found = []
        for actor in self.consumers:
            state = self.state(actor)
            if state not in ("ok", "behind", "-"):
                found.append(f"{actor.part.name} {state}")
        return found

    def pool(self, kind: str) -> str:
        """Memory or disk in use, of what there is."""
        pool = (self.broker.get("pools") or [{}])[0]
        return f"{format_size(pool.get(f'{kind}_bytes', 0))} of {format_size(pool.get(f'{kind}_limit_bytes', 0))}"

    def draw(self, width: int) -> Group:
        return Group(_header(self), _table(self, width), _footer(self))

    def line(self) -> str:
        return _line(self)


class Drawable(Protocol):
    """A thing that a screen can show."""

    def draw(self, width: int) -> RenderableType:
        """For a terminal of so many columns."""

    def line(self) -> str:
        """In one line."""


class Screen:
    """Shows pictures: live where there is a terminal, in plain lines where there is none."""

    def __init__(self, console: Console, plain: bool) -> None:
        self._console = console
        self._live = None if plain else Live(console=console, refresh_per_second=REFRESH_PER_S, transient=True)
        self._line_s = 0.0

    def __enter__(self) -> Screen:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """The live table goes; what is printed from now on stays."""
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        if self._live is not None:
            self._live.update(Text(text, style="dim"))
        else:
            print(text, flush=True)

    def show(self, picture: Drawable) -> None:
        if self._live is not None:
            self._live.update(picture.draw(self._console.width))
        elif time.monotonic() - self._line_s >= PLAIN_EVERY_S:
            self._line_s = time.monotonic()
            print(picture.line(), flush=True)


def _line(view: Dashboard) -> str:
    sent = view.publisher.last.records
    memory, disk = view.pool("memory"), view.pool("disk")
    healthy = [actor.last.p99_ms for actor in view.consumers if actor.part.healthy]
    slow = ", ".join(view.slow()) or "nobody"
    return (
        f"{view.elapsed_s:4.0f} s  {view.date}  {sent:,} of {view.total:,} flights  healthy p99 "
        f"{max(healthy, default=0):.0f} ms  pool {memory}, disk {disk}  slow: {slow}  {view.delays.line()}"
    )


def _header(view: Dashboard) -> Table:
    sent = view.publisher.last.records
    rate = view.rates.of("", sent, time.monotonic())
    grid = Table.grid(padding=(0, 2))
    grid.add_row(
        Text("Headway", style="bold"),
        Text(view.date or "before the first flight", style="cyan"),
        ProgressBar(total=max(1, view.total), completed=sent, width=32),
        f"{sent:,} of {view.total:,} flights",
        f"{rate:,.0f}/s",
        f"{view.elapsed_s:.0f} s",
    )
    return grid


def _table(view: Dashboard, width: int) -> Table:
    table = Table(expand=True, pad_edge=False)
    columns = {"consumer": False, "what it does": False, "received": True, "per s": True, "p99": True, "waiting": True,
               "state": False, "last decision": False}  # fmt: skip
    if width < WIDE:
        del columns["what it does"]
    for name, right in columns.items():
        table.add_column(name, justify="right" if right else "left", no_wrap=True, ratio=1 if "what" in name else None)
    now = time.monotonic()
    for actor in view.consumers:
        part, report, state = actor.part, actor.last, view.state(actor)
        known = view.states.get(part.name, {})
        verdict = known.get("last_verdict")
        waiting = int(known.get("lag_records", 0)) if part.name in view.connected else 0
        table.add_row(
            Text(part.name, style="bold green" if part.healthy else "bold"),
            *([part.about] if width >= WIDE else []),
            f"{report.records:,}",
            f"{view.rates.of(part.name, report.records, now):,.0f}",
            f"{report.p99_ms:.0f} ms" if part.healthy else "",
            f"{waiting:,}" if waiting else "",
            Text(state, style=STYLES.get(state, "magenta")),
            _decision(verdict) if verdict else "",
        )
    return table


def _decision(verdict: dict[str, Any]) -> str:
    done = deed(verdict)
    return done if verdict["kind"] == "fire" else "back within limits"


def _footer(view: Dashboard) -> Text:
    memory, disk = view.pool("memory"), view.pool("disk")
    rss = view.broker.get("memory_rss_bytes", 0)
    return Text(
        f"pool: memory {memory}, disk {disk}    broker process {format_size(rss)}    Ctrl-C ends it\n"
        f"{view.delays.line()}", style="dim",
    )  # fmt: skip
