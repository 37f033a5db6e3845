"""XML as nodes, read by expat.

Rules:
- No entity is declared or fetched: a file that declares one is refused, with the line. So nothing grows, and nothing
  outside the file is read.
- Prefixes of names (``amq:broker``) are left out, and so are declarations of namespaces and schemas.
- An ellipsis that stands by itself, as in manuals (``<broker ... >``), is left out. It is no setting.
- ``<maessageAge>`` may be closed by ``</messageAge>``: Qpid's document about slow consumers prints it so.
"""

from __future__ import annotations

import re
from xml.parsers import expat

from headway.migration.formats.file import Bad, File
from headway.migration.formats.node import DEPTH_MAX, NODES_MAX, Kind, Node, Where

_ELLIPSIS = re.compile(rb"(?<=[\s>])(\.\.\.|\xe2\x80\xa6)(?=[\s<>/])")
_MISPRINT = re.compile(rb"(<maessageAge>[^<]*)</messageAge>")
TEXT_CHARS_MAX = 10_000
"""More of the text of one element is no value, and is left out."""
_DECLARATIONS = ("xmlns", "xmlns:", "xsi:")


def read_xml(file: File) -> Node:
    """Reads a file; the root node has its outermost element as its only child. Raises Bad."""
    return _Reader(file).read()


class _Reader:
    def __init__(self, file: File) -> None:
        self._file = file
        self._root = self._here = Node("", Where(file.name, 1))
        self._depth = self._count = 0
        self._text: list[str] = []
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.EntityDeclHandler = self._entity
        self._parser.SkippedEntityHandler = self._skipped

    def read(self) -> Node:
        raw = _ELLIPSIS.sub(lambda match: b" " * len(match[0]), self._file.raw.lstrip())
        raw = _MISPRINT.sub(rb"\1</maessageAge>", raw)
        # What stood before the first element counts as lines, too.
        self._skipped_lines = self._file.raw[: len(self._file.raw) - len(self._file.raw.lstrip())].count(b"\n")
        try:
            self._parser.Parse(raw, True)
        except expat.ExpatError as error:
            where = Where(self._file.name, error.lineno + self._skipped_lines)
            raise Bad(where, f"is not well-formed XML: {expat.ErrorString(error.code)}") from None
        except (LookupError, ValueError) as error:
            # An encoding that Python does not have.
            raise Bad(Where(self._file.name, 1), f"is XML in an unknown encoding: {error}") from None
        return self._root

    def _where(self) -> Where:
        return Where(self._file.name, self._parser.CurrentLineNumber + self._skipped_lines)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._flush()
        self._depth += 1
        self._count += 1 + len(attributes)
        if self._depth > DEPTH_MAX or self._count > NODES_MAX:
            raise Bad(self._where(), "has more elements, or deeper ones, than any configuration")
        where = self._where()
        self._here = Node(name.rpartition(":")[2], where, "", self._here)
        for key, text in attributes.items():
            if not key.startswith(_DECLARATIONS):
                Node(key, where, text, self._here, Kind.ATTRIBUTE)

    def _end(self, name: str) -> None:
        self._flush()
        assert self._here.parent is not None
        self._here = self._here.parent
        self._depth -= 1

    def _characters(self, text: str) -> None:
        self._text.append(text)

    def _flush(self) -> None:
        text = " ".join("".join(self._text).split())
        self._text.clear()
        if text and self._here is not self._root and len(self._here.text) < TEXT_CHARS_MAX:
            self._here.text = f"{self._here.text} {text}".strip()

    def _entity(self, name: str, *_: object) -> None:
        raise Bad(self._where(), f"declares the entity {name[:40]!r}; entities are not read: write out what it says")

    def _skipped(self, name: str, is_parameter: bool) -> None:
        if not is_parameter:
            raise Bad(self._where(), f"has the entity {name[:40]!r}, and entities are not read: write out what it says")
