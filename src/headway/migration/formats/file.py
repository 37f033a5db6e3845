"""Files to be imported: loaded with a limit, and decoded."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from headway.core.base import ConfigError, format_size
from headway.migration.formats.node import Where

BYTES_MAX = 8_000_000
INCLUDED_MAX = 100
_BOM = b"\xef\xbb\xbf"


class Bad(ConfigError):
    """A file that cannot be read as what it should be, with the line."""

    def __init__(self, where: Where, text: str) -> None:
        super().__init__(f"{where}: {text}")
        self.where = where


class File(NamedTuple):
    name: str
    """The file's name without folders, for comments."""
    path: Path
    raw: bytes

    def text(self) -> str:
        """Returns the text. Raises Bad."""
        try:
            return self.raw.decode()
        except UnicodeDecodeError as error:
            line = self.raw.count(b"\n", 0, error.start) + 1
            raise Bad(Where(self.name, line), "is not text in UTF-8; is it the right file?") from None

    @property
    def is_xml(self) -> bool:
        return self.raw.lstrip()[:1] == b"<"

    @property
    def is_json(self) -> bool:
        """Tells whether it looks like JSON: an object whose first key is in quotes, or a list."""
        return re.match(rb'\s*(\{\s*["}]|\[\s*[\]{])', self.raw) is not None


class Includes:
    """The files that a file includes, and those that they include: so many at most, and so many bytes."""

    def __init__(self) -> None:
        self._left, self._bytes_left = INCLUDED_MAX, BYTES_MAX

    def load(
        self, file: File, pattern: str, *, order: Callable[[str], Any] = str, hidden: bool = False
    ) -> list[File] | None:
        """Reads files by name, or by a pattern for the names in one folder. None: some of them cannot be read, and
        nobody knows what they say. ``order``: the key by which names are sorted, ValueError: nobody knows it;
        ``hidden``: whether a wildcard stands for the dot of a hidden file, too."""
        try:
            path = file.path.parent / Path(pattern).expanduser()
            paths = [path]
            if set(path.name) & set("*?["):
                dotted = hidden or path.name.startswith(".")
                found_there = (one for one in path.parent.iterdir() if dotted or not one.name.startswith("."))
                paths = sorted((one for one in found_there if one.match(path.name)), key=lambda one: order(one.name))
            found: list[File] = []
            for one in paths:
                if not self._left or self._bytes_left <= 0:
                    return None
                found.append(load(one))
                self._left -= 1
                self._bytes_left -= len(found[-1].raw)
        except (ConfigError, OSError, RuntimeError, ValueError):
            return None
        return found


def load(path: Path) -> File:
    """Reads a file. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            raw = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    if len(raw) > BYTES_MAX:
        raise ConfigError(f"{path}: is larger than {format_size(BYTES_MAX)}; is it a configuration?")
    if not raw.strip():
        raise ConfigError(f"{path}: is empty")
    return File(path.name, path, raw.removeprefix(_BOM))
