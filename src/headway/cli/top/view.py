"""The view of `headway top`: how the list is sorted and filtered, which row is chosen, and what keys do to that.

Rules:
- Consumers that are away stand behind all others, whatever the order: nobody is there to be helped. Sorted by state
  they stand where their word puts them.
- Names go up, figures go down, unless reversed.
- The chosen row is a consumer, not a place: it stays chosen where the order changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from headway.cli.top.columns import BY_LAG, SORTS, sort_value

Consumer = dict[str, Any]
LETTERS = {"L": "lag", "A": "age", "H": "holds", "D": "drain", "N": "consumer", "S": "state"}
"""Keys that sort at once."""
CHARS_MAX = 200


class Page(Enum):
    LIST = "list"
    DETAILS = "details"
    HELP = "help"


class View:
    def __init__(self, sort: str = BY_LAG, reverse: bool = False, filter: str = "") -> None:
        self.sort, self.reverse, self.filter = sort, reverse, filter
        self.page = Page.LIST
        self.typing = False
        """A filter is being typed."""
        self.paused = False
        self.over = False
        self.scroll = 0
        """Lines of the details that are above the screen."""
        self.chosen: tuple[str, str] | None = None
        self.rows: list[Consumer] = []
        """The consumers as they stand now."""
        self.page_rows = 10
        """Rows that the screen has room for."""

    # -- the list -----------------------------------------------------------------------------------------------------

    @property
    def descends(self) -> bool:
        return SORTS[self.sort].left == self.reverse

    def arrange(self, consumers: Sequence[Consumer]) -> list[Consumer]:
        """Filters and sorts; what is equal stays in the broker's order."""
        word = self.filter.casefold()
        found = [one for one in consumers if word in f"{one.get('client')} {one.get('filter')} {one.get('state')} "
                 f"{one.get('protocol')} {one.get('listener')}".casefold()]  # fmt: skip
        found.sort(key=lambda one: sort_value(one, self.sort), reverse=self.descends)
        if self.sort != "state":
            found.sort(key=lambda one: one.get("state") == "away")
        self.rows = found
        return found

    @property
    def place(self) -> int:
        """The chosen row; the first where the one that was chosen is not there."""
        return next((at for at, one in enumerate(self.rows) if key_of(one) == self.chosen), 0)

    @property
    def row(self) -> Consumer | None:
        return self.rows[self.place] if self.rows else None

    def first(self, rows: int) -> int:
        """Returns the first row of a screen that has so many."""
        return min(max(0, self.place - rows // 2), max(0, len(self.rows) - rows))

    # -- keys ---------------------------------------------------------------------------------------------------------

    def press(self, key: str) -> None:
        if key in ("ctrl-c", "f10"):
            self.over = True
        elif self.typing:
            self._type(key)
        elif self.page is Page.LIST:
            self._list_key(key)
        else:
            self._page_key(key)

    def _type(self, key: str) -> None:
        if key == "enter":
            self.typing = False
        elif key == "esc":
            self.typing, self.filter = False, ""
        elif key == "backspace":
            self.filter = self.filter[:-1]
        elif len(key) == 1 and key.isprintable():
            self.filter = (self.filter + key)[:CHARS_MAX]
        else:
            self._move(key)

    def _list_key(self, key: str) -> None:
        match key:
            case "q":
                self.over = True
            case "/" | "f4":
                self.typing = True
            case "esc":
                self.filter = ""
            case ">" | "f6":
                self._next_sort(1)
            case "<":
                self._next_sort(-1)
            case "r" | "I":
                self.reverse = not self.reverse
            case "p" | " " | "Z":
                self.paused = not self.paused
            case "enter":
                self._open()
            case "?" | "h" | "f1":
                self.page, self.scroll = Page.HELP, 0
            case _ if key in LETTERS:
                self.sort, self.reverse = LETTERS[key], self.reverse and self.sort == LETTERS[key]
            case _:
                self._move(key)

    def _open(self) -> None:
        if self.row is not None:
            self.chosen = key_of(self.row)
            self.page, self.scroll = Page.DETAILS, 0

    def _next_sort(self, step: int) -> None:
        names = list(SORTS)
        self.sort, self.reverse = names[(names.index(self.sort) + step) % len(names)], False

    def _move(self, key: str) -> None:
        if not self.rows:
            return
        last, at = len(self.rows) - 1, self.place
        places = {
            "up": at - 1, "k": at - 1, "down": at + 1, "j": at + 1, "pgup": at - self.page_rows,
            "pgdn": at + self.page_rows, "home": 0, "g": 0, "end": last, "G": last,
        }  # fmt: skip
        if key in places and not (self.typing and len(key) == 1):
            self.chosen = key_of(self.rows[min(max(places[key], 0), last)])

    def _page_key(self, key: str) -> None:
        if key in ("q", "esc", "enter", "backspace", "left"):
            self.page = Page.LIST
        elif key in ("?", "h", "f1"):
            self.page = Page.LIST if self.page is Page.HELP else Page.HELP
        elif key in ("p", " ", "Z"):
            self.paused = not self.paused
        else:
            steps = {"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -self.page_rows, "pgdn": self.page_rows,
                     "home": -self.scroll}  # fmt: skip
            self.scroll = max(0, self.scroll + steps.get(key, 0))


def key_of(consumer: Consumer) -> tuple[str, str]:
    return str(consumer.get("client")), str(consumer.get("filter"))
