"""The live list: pictures are taken in a thread, so that keys are answered while the broker is not.

A broker that stops answering leaves its last picture on the screen, with a line of what is wrong; the thread asks again
at each interval.
"""

from __future__ import annotations

import threading
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.segment import Segment

from headway.cli.admin import AdminClient, NotFound
from headway.cli.top.details import details, help_page
from headway.cli.top.drawing import draw
from headway.cli.top.keys import Keys
from headway.cli.top.picture import Picture, take
from headway.cli.top.view import Page, View
from headway.core.base import ConfigError

IDLE_S = 1.0
"""The screen is drawn anew at least so often, as its size may have changed."""


class Taker:
    """Takes pictures, and asks about the client whose details are open."""

    def __init__(self, admin: AdminClient, first: Picture, interval_s: float, view: View, keys: Keys) -> None:
        self._admin, self._interval_s, self._view, self._keys = admin, interval_s, view, keys
        self._stop = threading.Event()
        self._soon = threading.Event()
        self.before: Picture | None = None
        self.picture = first
        self.why: tuple[str, dict[str, Any]] | None = None
        """A client's name, and what the broker answered about it."""
        self.trouble = ""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def ask_now(self) -> None:
        """Does not wait for the interval's end."""
        self._soon.set()

    def stop(self) -> None:
        self._stop.set()
        self._soon.set()

    def _run(self) -> None:
        while True:
            self._soon.wait(self._interval_s)
            self._soon.clear()
            if self._stop.is_set():
                return
            try:
                self._take()
                self.trouble = ""
            except ConfigError as error:
                self.trouble = str(error)
            if not self._stop.is_set():
                self._keys.wake()

    def _take(self) -> None:
        """Raises ConfigError."""
        if not self._view.paused:
            picture = take(self._admin)
            self.before, self.picture = self.picture, picture
        name = self._view.chosen[0] if self._view.page is Page.DETAILS and self._view.chosen else None
        if name is not None:
            try:
                self.why = name, self._admin.why(name)
            except NotFound:  # such as a cursor over HTTP
                self.why = name, {"client": name, "connected": True}


class _Scrolled:
    """Lines of a page from one on, as many as the screen has room for."""

    def __init__(self, page: Group, view: View, height: int) -> None:
        self._page, self._view, self._height = page, view, height

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._page, options.update(height=None), pad=False)
        self._view.scroll = min(self._view.scroll, max(0, len(lines) - self._height))
        for line in lines[self._view.scroll :][: self._height]:
            yield from line
            yield Segment.line()


def watch(admin: AdminClient, console: Console, interval_s: float, view: View | None = None) -> None:
    """Draws until a key or Ctrl-C ends it. Raises ConfigError if the broker does not answer at first."""
    view = View() if view is None else view
    first = take(admin)
    with Keys() as keys:
        taker = Taker(admin, first, interval_s, view, keys)
        try:
            with Live(console=console, screen=True, auto_refresh=False) as live:
                while not view.over:
                    live.update(_screen(taker, view, console), refresh=True)
                    page = view.page
                    for key in keys.wait(IDLE_S):
                        view.press(key)
                    if view.page is not page:
                        taker.ask_now()
        finally:
            taker.stop()


def _screen(taker: Taker, view: View, console: Console) -> Group:
    view.arrange(taker.picture.consumers)
    if view.page is Page.HELP:
        return Group(_Scrolled(help_page(), view, console.height - 1))
    row = next((one for one in taker.picture.consumers if view.chosen == (one.get("client"), one.get("filter"))), None)
    if view.page is Page.DETAILS and view.chosen is not None:
        name, filter = view.chosen
        why = taker.why[1] if taker.why is not None and taker.why[0] == name else None
        shown = row or {"client": name, "filter": filter, "state": "gone"}
        return Group(_Scrolled(details(shown, why, taker.trouble), view, console.height - 1))
    return draw(taker.picture, taker.before, console, view, taker.trouble, live=True)
