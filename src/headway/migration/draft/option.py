"""Options of other systems, what became of each that a file sets, and how that is counted."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from headway.migration.formats import Where


class Option(NamedTuple):
    """One option of another system, or several that are alike: a row of its page in ``docs/coming-from``."""

    names: tuple[str, ...]
    """Names as its files have them; that of an attribute of XML has its element's in front. ``log.*`` stands for all
    that begin so."""
    here: str
    """Headway's counterpart, in Markdown; empty: there is none."""
    differs: str
    """The difference; the reason, if there is no counterpart."""
    restricts: bool = False
    """Whether it may keep clients out, or from something. Without a counterpart it closes what is imported."""


class Result(StrEnum):
    """The fate of a setting."""

    CARRIED = "carried over"
    SAME = "so here anyway"
    LOST = "without counterpart"


class Outcome(NamedTuple):
    """The fate of one setting of a file."""

    where: Where
    option: str
    """The setting's name, for people."""
    value: str
    result: Result
    why: str = ""
    """The reason, if it has no counterpart or needs none."""

    def __str__(self) -> str:
        value = f" = {self.value}" if self.value else ""
        return f"{self.where}: {self.option}{value}: {self.why}"
