"""A page of docs/start as something that runs.

What its blocks are:
- ``sh``: commands. All of a page's go to one shell, so that what runs in the background goes on.
- ``toml``, ``python``, ``html``, ``xml``: a file. The paragraph before names it: This is `NAME`.
- ``text``: parts of lines that the commands before have printed, in this order. Where the paragraph before says
  Open <URL>, they are what a browser shows there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NAMED = re.compile(r"`([\w.-]+\.\w+)`")
OPENED = re.compile(r"Open <(http://[^>]+)>")
FILES = ("toml", "python", "html", "xml")


@dataclass(frozen=True)
class Block:
    kind: str
    text: str
    before: str
    """The paragraph before it."""

    @property
    def file(self) -> str:
        """The name of the file that it is."""
        named = NAMED.findall(self.before)
        assert named, f"the paragraph before this block does not name its file:\n{self.text}"
        return str(named[0])

    @property
    def opened(self) -> str | None:
        """The address that a browser opens before it."""
        found = OPENED.search(self.before)
        return found and found[1]


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(match[1], match[2], text[: match.start()].rstrip().rsplit("\n\n", 1)[-1])
        for match in BLOCK.finditer(text)
    ]
