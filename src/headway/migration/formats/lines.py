"""Files with a setting in each line: ``key value``, ``key = value`` or ``key: value``. ``#`` begins a comment."""

from __future__ import annotations

import re

from headway.migration.formats.file import Bad, File
from headway.migration.formats.node import NODES_MAX, Node, Where

_SETTING = re.compile(r"([^\s=:]+(?::[^\s=:]+)*)\s*[=:]?\s*(.*)")
_SPACES = re.compile(r"(\S+)\s*(.*)")
_EQUALS = re.compile(r"([^\s=]+)\s*=\s*(.*)")


def read_lines(file: File, *, equals: bool = False, spaces: bool = False) -> Node:
    """Reads a file: each line is a child of the root. ``equals``: there is a ``=`` between key and value; ``spaces``:
    there are spaces alone. Raises Bad."""
    root = Node("", Where(file.name, 1))
    form = _EQUALS if equals else _SPACES if spaces else _SETTING
    for number, line in enumerate(file.text().splitlines(), 1):
        line = line.strip()
        if not line or line[0] in "#!" or line.startswith("%%"):
            continue
        where = Where(file.name, number)
        match = form.fullmatch(line)
        if match is None:
            raise Bad(where, f"is not a setting: {line[:60]!r}")
        if len(root.children) >= NODES_MAX:
            raise Bad(where, "has more lines than any configuration")
        # A comment behind a value has a space before it; a # within a value has none.
        Node(match[1], where, re.sub(r"\s#.*$", "", match[2]).strip().strip('"'), root)
    return root
