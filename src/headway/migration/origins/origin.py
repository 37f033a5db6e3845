"""Origins: the systems whose files are read, each with its options and its reader."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from headway.migration.draft import Draft, Option
from headway.migration.formats import File, Node
from headway.migration.origins.option_table import options_of

_ELEMENT = re.compile(r"<\s*(?:[\w-]+:)?([A-Za-z][\w.-]*)")
_WORD = re.compile(r"""^[ \t{,]*["']?([A-Za-z][^\s=:{"']*)""", re.MULTILINE)
_KEY = re.compile(r'"([A-Za-z][\w.-]*)"\s*:')
_BLOCK = re.compile(r"[{\[][ \t]*$", re.MULTILINE)


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

    @property
    def options(self) -> tuple[Option, ...]:
        return options_of(self.name)

    def score(self, file: File) -> int:
        """Returns how many names of a file are known, those of groups a tenth each; a file that is of another form has
        none. It need not be well-formed: then the error is that of the right reader."""
        text = file.raw.decode(errors="replace")
        if file.is_xml != self.xml or (file.is_json and not (self.json or self.blocks)):
            return 0
        if _BLOCK.search(text) and not (self.xml or self.blocks or file.is_json):
            return 0
        found = set((_ELEMENT if self.xml else _KEY if file.is_json else _WORD).findall(text))
        known = {name.partition(" ")[0] for option in self.options for name in option.names} | set(self.signs)
        begins = tuple(name[:-1] for name in known if name.endswith("*"))
        # A block of NATS is known by the first word of its settings: mqtt.port.
        known |= {name.partition(".")[0] for name in known}
        return sum(10 if name in known else name.startswith(begins) for name in found)
