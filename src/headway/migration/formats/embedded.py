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
    text = re.sub(r"<!--.*?-->", lambda match: "\n" * match[0].count("\n"), file.text(), flags=re.DOTALL)
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith(("#", "//", "!", "rem ", "REM ")):
            continue
        for match in form.finditer(line):
            if len(root.children) < NODES_MAX:
                Node(match[1], Where(file.name, number), match[2], root)
    return root
