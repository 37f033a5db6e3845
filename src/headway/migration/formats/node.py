"""Nodes: the settings of a foreign file, whatever its format, as a tree."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

NODES_MAX = 200_000
DEPTH_MAX = 100
ITEM = "item"
"""The name of each value of a list."""


class Where(NamedTuple):
    """A place in a file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Kind(Enum):
    """The form of a node, which says how people name it."""

    ELEMENT = "element"
    """By its name alone: an element of XML, a line."""
    ATTRIBUTE = "attribute"
    """An attribute of XML: with the name of its element in front."""
    KEY = "key"
    """A key within blocks: with the keys of the blocks in front, and dots between."""


class Node:
    """A setting, or a group of settings. ``said``: the report has a line about it; ``quoted``: its value is in quotes;
    ``used``: other settings have its value, or it names files that were read."""

    __slots__ = ("children", "kind", "name", "parent", "quoted", "said", "text", "used", "where")

    def __init__(
        self, name: str, where: Where, text: str = "", parent: Node | None = None, kind: Kind = Kind.ELEMENT
    ) -> None:
        self.name = name
        self.where = where
        self.text = text
        """The value; empty for a group."""
        self.parent = parent
        self.kind = kind
        self.children: list[Node] = []
        self.said = self.quoted = self.used = False
        if parent is not None:
            parent.children.append(self)

    def child(self, *names: str) -> Node | None:
        """Returns the first child of one of these names, in the order of the names."""
        for name in names:
            for one in self.children:
                if one.name == name:
                    return one
        return None

    def all(self, *names: str) -> list[Node]:
        """Returns the children of these names."""
        return [one for one in self.children if one.name in names]

    def find(self, *names: str) -> list[Node]:
        """Returns all nodes of these names at any depth, the node itself among them, in the order of the file."""
        return [one for one in self.walk() if one.name in names]

    def walk(self) -> Iterator[Node]:
        """Yields the node and everything in it, in the order of the file."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))

    def value(self, name: str, default: str = "") -> str:
        """Returns the value of a child, without white space around it; ``default``: there is none."""
        found = self.child(name)
        return default if found is None else found.text.strip()

    def within(self, *names: str) -> bool:
        """Tells whether one of the nodes around it has one of these names."""
        above = self.parent
        while above is not None:
            if above.name in names:
                return True
            above = above.parent
        return False

    @property
    def label(self) -> str:
        """The name for people."""
        if self.kind is Kind.ELEMENT or self.parent is None:
            return self.name
        if self.kind is Kind.ATTRIBUTE:
            return f"{self.parent.name} {self.name}"
        names, node = [], self
        while node.parent is not None:
            if node.name != ITEM:
                names.append(node.name)
            node = node.parent
        return ".".join(reversed(names))
