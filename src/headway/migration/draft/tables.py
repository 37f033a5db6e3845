"""Tables of the config in the making: keys with their values, and a comment that names the source of each."""

from __future__ import annotations

from typing import Any, NamedTuple

from headway.migration.formats import Node
from headway.store.toml import toml_key, value

WIDTH = 40
"""Column where comments begin, if the line is not longer."""
COMMENT_CHARS_MAX = 400


class Keyed(NamedTuple):
    """A value and its source."""

    value: Any
    source: str
    off: bool = False
    """Whether it is written as a comment, because it cannot hold on this machine."""


def said(node: Node, note: str = "") -> str:
    """Returns the comment of a key: the place, the setting as it was written, and a note."""
    text = f' "{node.text}"' if node.text else ""
    return f"{node.where} {node.label}{text}{'; ' if note else ''}{note}"


def comment(text: str) -> str:
    """Returns a text as one line that cannot end a comment."""
    line = "".join(char if char.isprintable() else " " for char in " ".join(text.replace("`", "").split()))
    return f"# {line if len(line) <= COMMENT_CHARS_MAX else line[: COMMENT_CHARS_MAX - 3] + '...'}"


def key_line(key: str, item: Keyed) -> str:
    line = f"{'# ' if item.off else ''}{toml_key(key)} = {value(item.value)}"
    return f"{line:<{WIDTH}} {comment(item.source)}" if item.source else line


def table_text(header: str, keys: dict[str, Keyed]) -> str:
    """Writes a table. ``header`` has its brackets."""
    return "\n".join([header, *(key_line(key, item) for key, item in keys.items())]) + "\n"


def commented(text: str) -> str:
    """Turns the lines of a table into comments."""
    return "".join(f"# {line}".rstrip() + "\n" for line in text.splitlines())
