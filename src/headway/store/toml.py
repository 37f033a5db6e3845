"""Reads TOML files, and reports errors in plain words."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headway.core.base import ConfigError, format_size

FILE_BYTES_MAX = 4_000_000


class BadConfig(ConfigError):
    """The errors of a file, one per line in ``lines``."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = list(lines)


def read_text(path: Path, bytes_max: int = FILE_BYTES_MAX) -> str:
    """Returns the text of a file. Raises BadConfig."""
    try:
        with path.open("rb") as file:
            raw = file.read(bytes_max + 1)
        text = raw.decode()
    except OSError as error:
        raise BadConfig([f"{path}: cannot be read: {(error.strerror or str(error)).lower()}"]) from None
    except UnicodeDecodeError as error:
        raise BadConfig([f"{path}: is not text in UTF-8 (byte {error.start + 1})"]) from None
    if len(raw) > bytes_max:
        raise BadConfig([f"{path}: is larger than {format_size(bytes_max)}; is it the right file?"])
    return text


def parse_toml(text: str, where: str = "") -> dict[str, Any]:
    """Parses a text. ``where`` is put in front of errors. Raises BadConfig."""
    try:
        # TOML knows lines by \n and \r\n only.
        return tomllib.loads(text.replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        raise BadConfig([f"{where}is not TOML: {lower_first(str(error))}"]) from None
    except RecursionError:
        raise BadConfig([f"{where}is nested too deep"]) from None


def lower_first(text: str) -> str:
    """Begins a text in lower case, to continue a sentence after a colon."""
    return text[:1].lower() + text[1:]
