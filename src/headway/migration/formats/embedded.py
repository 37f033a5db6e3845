"""Properties that stand anywhere in a text: in a properties file, a start script, a Jini configuration, XML, prose."""

from __future__ import annotations

import re

from headway.migration.formats.file import File
from headway.migration.formats.node import NODES_MAX, Node, Where

_QUOTES = "[\"'`]?"


def read_embedded(file: File, name: str) -> Node:
    """Reads the properties whose names match the pattern ``name``: ``-Dname=value``, ``name = value``, ``"name",
    "value"``, or ``<prop key="name">value</prop>``. Lines that begin with ``#`` or ``//`` are comments."""
    form = re.compile(rf"({name}){_QUOTES}\s*(?:[=:,]|>)\s*{_QUOTES}([^\s\"'`,;<>)]+)")
    root = Node("", Where(file.name, 1))
    for number, line in enumerate(_without_comments(file.text()).splitlines(), 1):
        if line.lstrip().startswith(("#", "//", "!", "rem ", "REM ")):
            continue
        for match in form.finditer(line):
            if len(root.children) < NODES_MAX:
                Node(match[1], Where(file.name, number), match[2], root)
    return root


def _without_comments(text: str) -> str:
    """Leaves out comments of XML, not their lines."""
    parts: list[str] = []
    position = 0
    while (start := text.find("<!--", position)) >= 0 and (end := text.find("-->", start)) >= 0:
        parts += [text[position:start], "\n" * text.count("\n", start, end)]
        position = end + len("-->")
    return "".join([*parts, text[position:]])
