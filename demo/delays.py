"""The delays of the demo: a board that anybody may open in a browser, and a desk whose view is cut and comes back."""

from __future__ import annotations

import json

import msgspec
from rich.console import Console
from rich.text import Text

from demo.board import FILTER, LATE, TOP, BoardServer
from demo.broker import BrokerFailed, BrokerProcess
from demo.cast import DESK
from demo.company import Company, await_all
from demo.judgement import deed

DRAWN_S = 5.0
"""For so long, at the end, it waits for a page to draw the last flights."""


class Delays:
    def __init__(self, broker: BrokerProcess, company: Company) -> None:
        self._broker = broker
        self._company = company
        self._board = BoardServer(broker.admin, broker.web)
        self.desk = company.hire(msgspec.structs.replace(DESK, host=broker.host, port=broker.port), "desk")
        self._verdicts: list[dict[str, object]] = []

    @property
    def url(self) -> str:
        return self._board.url

    def close(self) -> None:
        self._board.close()

    def look(self) -> None:
        """Has the desk read on, once it was cut."""
        if not self._verdicts and self.desk.last.records:
            self._verdicts = [one for one in self._broker.why(DESK.name) if deed(one) == "disconnected"]
            if self._verdicts:
                self.desk.order("go")

    def line(self) -> str:
        report = self.desk.last
        age = f"{report.stale_s:.1f} s old: {report.text}" if report.text else "current"
        return f"board {self.url}    {DESK.name}: {report.total:,} aircraft, {age}"

    def show(self, console: Console) -> bool:
        """Ends the desk, and says whether its image and the page's table came to be what the broker has. Raises
        BrokerFailed."""
        self._company.stop([self.desk])
        truth = self._broker.state(FILTER, where=LATE)
        if truth is None:
            raise BrokerFailed("the broker does not say what it has of the delays")
        console.print()
        console.print("[bold]The delays: a board in the browser, and a view that was cut[/bold]")
        desk = self._desk_is_true({f"{one['topic']} {one['key']}": int(one["offset"]) for one in truth}, console)
        late = [(-json.loads(one["payload"])["dep_delay"], int(one["offset"])) for one in truth]
        page = self._page_is_true([offset for _, offset in sorted(late)[:TOP]], console)
        return desk and page

    def _desk_is_true(self, image: dict[str, int], console: Console) -> bool:
        report = self.desk.last
        if self._verdicts:
            console.print(Text(f"{DESK.name} was cut: {self._verdicts[-1]['text']}."))
            console.print(Text(
                f"It kept its image and said how old it was, {report.oldest_s:.1f} s at most; it was current again "
                f"{report.back_s:.1f} s after it read on."
            ))  # fmt: skip
        else:
            console.print(Text(f"{DESK.name} was not cut."))
        wrong = len(image.items() ^ report.image.items())
        if wrong:
            console.print(Text(f"Its image and the broker's state differ in {wrong} records.", style="bold red"))
            return False
        console.print(Text(f"In the end it has the {len(image)} flights that the broker has.", style="bold green"))
        return True

    def _page_is_true(self, top: list[int], console: Console) -> bool:
        board = self._board
        if board.shown is None:
            console.print(Text("Nobody has opened the board."))
            return True
        if not await_all(lambda: board.shown is not None and board.shown.top == top, DRAWN_S):
            console.print(Text("The board's last table is not the broker's.", style="bold red"))
            return False
        drawn = f"The board was drawn {board.shown.draws:,} times; its last table is the broker's."
        console.print(Text(drawn, style="bold green"))
        return True
