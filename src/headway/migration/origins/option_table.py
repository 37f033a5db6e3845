"""The tables of options, one TOML file per origin. Pages of ``docs/coming-from`` have the same rows."""

from __future__ import annotations

from functools import cache
from importlib import resources

from headway.migration.draft import Option
from headway.store.toml import parse_toml


@cache
def options_of(name: str) -> tuple[Option, ...]:
    """Returns the known options of an origin, in the order of its page."""
    text = resources.files("headway.migration.origins").joinpath("options", f"{name}.toml").read_text(encoding="utf-8")
    return tuple(
        Option(tuple(row["names"]), row.get("here", ""), row.get("differs", ""), row.get("restricts", False))
        for row in parse_toml(text)["option"]
    )
