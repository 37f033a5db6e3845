"""Origins: the systems whose files are read, each with its options and its reader."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from typing import NamedTuple

from headway.migration.draft import Draft, Option
from headway.migration.formats import ITEM, Bad, File, Node
from headway.store.toml import parse_toml

# -- option table ------------------------------------------------------------------------------------------------------
#
# The tables of options, one TOML file per origin. Pages of ``docs/coming-from`` have the same rows.


@cache
def options_of(name: str) -> tuple[Option, ...]:
    """Returns the known options of an origin, in the order of its page."""
    text = resources.files("headway.migration.origins").joinpath("options", f"{name}.toml").read_text(encoding="utf-8")
    return tuple(
        Option(tuple(row["names"]), row.get("here", ""), row.get("differs", ""), row.get("restricts", False))
        for row in parse_toml(text)["option"]
    )


# -- origin ------------------------------------------------------------------------------------------------------------


_ELEMENT = re.compile(r"<\s*(?:[\w-]+:)?([A-Za-z][\w.-]*)")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_WORD = re.compile(r"""^[ \t{,]*["']?([A-Za-z][^\s=:{"']*)""", re.MULTILINE)
_KEY = re.compile(r'"([A-Za-z][\w.-]*)"\s*:')
_BLOCK = re.compile(r"[{\[][ \t]*$", re.MULTILINE)
COMMON = frozenset((
    "address", "addresses", "bind", "bindings", "cluster", "databases", "debug", "description", "dir", "host", "hz",
    "http", "https", "include", "interface", "listen", "loglevel", "logfile", "metadata", "name", "net", "parameters",
    "password", "path", "permissions", "pid_file", "pidfile", "plugin", "policies", "port", "protocol", "queues",
    "realm", "save", "server", "server_name", "strict", "syslog", "system", "tags", "timeout", "tls", "topic", "topics",
    "trace", "transport", "user", "users", "version",
))  # fmt: skip
"""Names that are in many files that are of none of these systems."""
COMMON_BEGINS = ("log", "ssl", "tls", "management", "tracing", "password", "local_", "remote_", "trace", "auth_")


class Origin(NamedTuple):
    """A system, or one of its kinds of files."""

    name: str
    """The word for ``--from``."""
    title: str
    also: Sequence[str]
    """Other words for ``--from``."""
    parse: Callable[[File], Node]
    read: Callable[[Sequence[Node], Draft], None]
    """Reads all files of one import together."""
    xml: bool = False
    """Whether its files are XML."""
    blocks: bool = False
    """Whether its files have blocks in braces."""
    json: bool = False
    """Whether some of its files are JSON."""
    signs: Sequence[str] = ()
    """Names that only its files have, beside those of its options."""

    marks: Sequence[str] = ()
    """Texts that only its files have, such as a namespace."""

    @property
    def options(self) -> tuple[Option, ...]:
        return options_of(self.name)

    def score(self, file: File) -> Score:
        """Returns how sure it is that a file is of this system. It need not be well-formed: then the error is that of
        the right reader."""
        text = file.raw.decode(errors="replace")
        if file.is_xml != self.xml or (file.is_json and not (self.json or self.blocks)):
            return Score(0, (), 0)
        if _BLOCK.search(text) and not (self.xml or self.blocks or file.is_json):
            return Score(0, (), 0)
        names, inner, broken = self._names(file, text)
        known = {name.partition(" ")[0] for option in self.options for name in option.names} | set(self.signs)
        begins = tuple(name[:-1] for name in known if name.endswith("*"))
        # A block of NATS is known by the first word of its settings: mqtt.port.
        known |= {name.partition(".")[0] for name in known if self.blocks or file.is_json}
        found = sorted(name for name in names if name in known)
        alike = [name for name in names if name not in known and name.startswith(begins)]
        points = 10 * len(found) + len(alike) + 100 * sum(mark in text for mark in self.marks)
        # Of groups, those with a word and a dot in front say something: mqtt.*, not max_*.
        dotted = tuple(begin for begin in begins if begin.endswith("."))
        grouped = [name for name in alike if name.startswith(dotted)]
        own = [name for name in (*found, *grouped, *(inner & set(self.signs))) if self._is_own(name)]
        # Systems of lines and blocks refuse what they do not know, and names of groups are guesses. XML has the
        # elements of others around its own.
        most = self.xml or 2 * len(found) + len(alike) >= len(names)
        sure = points >= 100 or ((bool(own) or broken) and most)
        return Score(points if sure else 0, tuple(found), len(names))

    def _names(self, file: File, text: str) -> tuple[set[str], set[str], bool]:
        """Returns the names of a file's settings, those of the outermost level where there are levels; those of the
        items within, if it is JSON; and whether it is not well-formed."""
        if self.xml:
            return set(_ELEMENT.findall(_COMMENT.sub("", text))), set(), False
        try:
            outer = self.parse(file).children
        except Bad:
            return set((_KEY if file.is_json else _WORD).findall(text)), set(), file.is_json
        if outer and all(node.name == ITEM for node in outer):
            outer = [node for item in outer for node in item.children]
        inner = [node for group in outer for item in group.children if item.name == ITEM for node in item.children]
        names = {node.name for node in outer if not node.used}
        return names, {node.name for node in inner} if file.is_json else set(), False

    @property
    def _carried(self) -> set[str]:
        """Names of elements with a counterpart here. Others are around them, such as those of Camel."""
        return {name.partition(" ")[0] for option in self.options if option.here for name in option.names}

    def _is_own(self, name: str) -> bool:
        """Tells whether a known name says more than any word would."""
        if name in self.signs:
            return True
        if self.xml:
            return name in self._carried and re.search(r"[a-z0-9][A-Z]|-", name) is not None
        return name not in COMMON and not name.startswith(COMMON_BEGINS)


class Score(NamedTuple):
    """How sure it is that a file is of one system."""

    points: int
    """More than others: it is; 0: it is not, or nobody could tell."""
    known: tuple[str, ...]
    """Names that the system has."""
    names: int
    """Number of names in the file."""
