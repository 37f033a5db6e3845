"""What a part of the soak is, and what it hands back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple


class Row(NamedTuple):
    """One thing that was looked at: what was found, beside what it has to be."""

    what: str
    found: str
    wanted: str
    held: bool


@dataclass(frozen=True)
class Part:
    """``run`` takes its time, says with its argument how it goes on, and hands back rows for the table."""

    name: str
    about: str
    run: Callable[[Callable[[str], None]], Iterable[Row]]
