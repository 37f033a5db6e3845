"""Options of a read or a write, ``.option(...)``: their texts become values. Spark does not tell capital letters from
small ones."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any

from headway.core.base import ConfigError, parse_duration
from headway.core.message import BadTopic

SPARKS_OWN = re.compile(r"paths?|checkpointlocation|provider|owner|location|comment|option\..*|spark\..*")
"""Options that Spark adds: the path of ``load(path)``, and the properties of a table."""
Readers = Mapping[str, tuple[str, Callable[[str], Any]]]
"""Readers by option: the field that it sets, and the function that reads its text."""
_WORDS = {"true": True, "false": False}


def read_values(given: Mapping[str, str], known: Readers) -> dict[str, Any]:
    """Returns the fields that options were given for. Raises ConfigError."""
    said = {name.lower(): text.strip() for name, text in given.items()}
    names = {name.lower() for name in known}
    for name in said:
        if name not in names and not SPARKS_OWN.fullmatch(name):
            near = difflib.get_close_matches(name, names, n=1)
            meant = "".join(f"; did you mean {one}?" for one in known if one.lower() in near)
            raise ConfigError(f"unknown option {name!r}: there are {', '.join(sorted(known, key=str.lower))}{meant}")
    values: dict[str, Any] = {}
    for name, (attribute, read) in known.items():
        if text := said.get(name.lower()):
            try:
                values[attribute] = read(text)
            except (ConfigError, BadTopic) as error:
                raise ConfigError(f"option {name}: {error}") from None
    return values


def read_flag(text: str) -> bool:
    if text.lower() not in _WORDS:
        raise ConfigError(f'"{text}" is neither true nor false')
    return _WORDS[text.lower()]


def read_seconds(text: str) -> float:
    """Reads a duration; a bare number is in seconds, as Spark makes texts of numbers."""
    return parse_duration(float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else text)
