"""Foreign files read as trees of settings, each with its line. Nothing here knows what a setting means."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers import expat

from headway.core.base import ConfigError, format_size
from headway.migration.hiding import HIDDEN, hide, names_secret

# -- node --------------------------------------------------------------------------------------------------------------
#
# Nodes: the settings of a foreign file, whatever its format, as a tree.


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


_NAMES, _VALUES = ("name", "key", "option", "property"), ("value", "values", "text", ITEM)
"""How some formats write the name of a setting, and its value, in two attributes or keys."""


class Node:
    """A setting, or a group of settings. ``said``: the report has a line about it; ``quoted``: its value is in quotes;
    ``used``: other settings have its value, or it names files that were read; ``secret``: its value is hidden, whatever
    its name is."""

    __slots__ = ("children", "kind", "name", "parent", "quoted", "said", "secret", "text", "used", "where")

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
        self.said = self.quoted = self.used = self.secret = False
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
    def shown(self) -> str:
        """The value for people. Nothing else of a value is printed, in a comment, a report or an error."""
        return HIDDEN if self.text.strip() and self._is_secret() else hide(self.text)

    def _is_secret(self) -> bool:
        node: Node = self
        while True:
            if node.secret or names_secret(node.name, self.text):
                return True
            # <property name="password" value="..."/>, {"name": "cluster_secret", "value": ...}
            holder = node if node is self else None
            if node.name in _VALUES and node.parent is not None:
                holder = node.parent
            named = holder.child(*_NAMES) if holder is not None else None
            if named is not None and named is not self and names_secret(named.text, self.text):
                return True
            if node.parent is None:
                return False
            node = node.parent

    @property
    def label(self) -> str:
        """The name for people."""
        # A line that its reader did not understand may have a value in its name.
        return hide(self._label)

    @property
    def _label(self) -> str:
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


# -- file --------------------------------------------------------------------------------------------------------------
#
# Files to be imported: loaded with a limit, and decoded.


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


# -- braces ------------------------------------------------------------------------------------------------------------
#
# Blocks in braces, as NATS and JSON write them: ``key: value``, ``key = value``, ``key value``, ``key { … }``, and
# lists in brackets.
#
# A list becomes a node with a child ``item`` for each of its values. Comments begin with ``#`` or ``//``.


_TOKEN = re.compile(
    r"""(?P<space>[ \t\r,;]+|(?:\#|//)[^\n]*)|(?P<line>\n)|(?P<mark>[{}\[\]=]|:(?!(?<=\s:)[-\d]))
    |(?P<quoted>"(?:[^"\\\n]|\\.)*"|'[^'\n]*')|(?P<word>(?:[^\s{}\[\],;=:"'\#]|:(?=\S))+)""",
    re.VERBOSE | re.DOTALL,
)
_BLOCK, _BLOCK_END = re.compile(r"\([ \t\r]*\n"), re.compile(r"\n[ \t]*\)")
"""A text over several lines, in parentheses."""
_ESCAPE = re.compile(r'\\(u[0-9a-fA-F]{4}|["\\/bfnrt])')
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def read_braces(file: File) -> Node:
    """Reads a file. Raises Bad."""
    return _Reader(file).read()


class _Reader:
    def __init__(self, file: File) -> None:
        self._name = file.name
        self._tokens = self._split(file.text())
        self._at = 0

    def _split(self, text: str) -> list[_Token]:
        tokens: list[_Token] = []
        position, line, blocks = 0, 1, True
        while position < len(text):
            if blocks and text[position] == "(" and _BLOCK.match(text, position):
                end = _BLOCK_END.search(text, position)
                blocks = end is not None  # looked for once in vain
                if end is not None:
                    tokens.append(_Token("block", text[position : end.end()], line))
                    line += tokens[-1].text.count("\n")
                    position = end.end()
                    continue
            match = _TOKEN.match(text, position)
            if match is None:
                what = "an unclosed quote" if text[position] in "\"'" else f"a {text[position]!r} where none can be"
                raise Bad(Where(self._name, line), f"has {what}")
            kind = match.lastgroup or ""
            if kind not in ("space", "line"):
                tokens.append(_Token(kind, match[0], line))
                if len(tokens) > NODES_MAX:
                    raise Bad(Where(self._name, line), "has more settings than any configuration")
            line += match[0].count("\n")
            position = match.end()
        return tokens

    def read(self) -> Node:
        """Reads the settings of the outermost block, which needs no braces. Depth is a list: nothing recurses."""
        root = Node("", Where(self._name, 1))
        whole = bool(self._tokens) and self._tokens[0].text == "{" and self._tokens[0].kind == "mark"
        stack: list[tuple[Node, str, int]] = [(root, "}" if whole else "", 1)]
        self._at = 1 if whole else 0
        if self._tokens and self._tokens[0].text == "[":
            stack, self._at = [(root, "]", 1)], 1
        while self._at < len(self._tokens):
            node, closing, _ = stack[-1]
            token = self._tokens[self._at]
            self._at += 1
            if token.kind == "mark" and token.text in "}]":
                if token.text != closing:
                    raise Bad(Where(self._name, token.line), f"has a {token.text} that closes nothing")
                stack.pop()
                if not stack:
                    break
                continue
            opened = self._item(node, token) if closing == "]" else self._setting(node, token)
            if opened is not None:
                stack.append(opened)
                if len(stack) > DEPTH_MAX:
                    raise Bad(Where(self._name, token.line), "has deeper blocks than any configuration")
        if stack and stack[-1][1]:
            raise Bad(Where(self._name, stack[-1][2]), "has a block that is not closed")
        if not stack and self._at < len(self._tokens):
            raise Bad(Where(self._name, self._tokens[self._at].line), "goes on after its end")
        return root

    def _setting(self, parent: Node, token: _Token) -> tuple[Node, str, int] | None:
        where = Where(self._name, token.line)
        if token.kind == "mark":
            raise Bad(where, f"has a {token.text} where a setting should begin")
        name = _plain(token)
        if token.kind == "word" and name.endswith(":"):
            name = name[:-1]
        following = self._next()
        if following is not None and following.kind == "mark" and following.text in "=:":
            self._at += 1
            following = self._next()
        elif token.kind == "word" and ":" in name:
            # key:value without a space
            name, _, rest = name.partition(":")
            Node(name, where, rest, parent, Kind.KEY)
            return None
        if following is None or (following.kind == "mark" and following.text in "}]=:"):
            raise Bad(where, f"{name[:40]!r} has no value")
        self._at += 1
        return self._value(Node(name, where, "", parent, Kind.KEY), following)

    def _item(self, parent: Node, token: _Token) -> tuple[Node, str, int] | None:
        if token.kind == "mark" and token.text in "=:":
            raise Bad(Where(self._name, token.line), f"has a {token.text} in a list")
        return self._value(Node(ITEM, Where(self._name, token.line), "", parent, Kind.KEY), token)

    def _value(self, node: Node, token: _Token) -> tuple[Node, str, int] | None:
        if token.kind == "mark":
            return (node, "}" if token.text == "{" else "]", token.line)
        node.text, node.quoted = _plain(token), token.kind == "quoted"
        return None

    def _next(self) -> _Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None


def _plain(token: _Token) -> str:
    if token.kind == "quoted":
        inner = token.text[1:-1]
        return _ESCAPE.sub(_unescaped, inner) if token.text[0] == '"' else inner
    return token.text[1:-1].strip() if token.kind == "block" else token.text


def _unescaped(match: re.Match[str]) -> str:
    word = match[1]
    return chr(int(word[1:], 16)) if word[0] == "u" else _ESCAPED.get(word, word)


# -- embedded ----------------------------------------------------------------------------------------------------------
#
# Properties that stand anywhere in a text: in a properties file, a start script, a Jini configuration, XML, prose.


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


# -- lines -------------------------------------------------------------------------------------------------------------
#
# Files with a setting in each line: ``key value``, ``key = value`` or ``key: value``. ``#`` begins a comment.


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
            raise Bad(where, f"is not a setting: {hide(line)[:60]!r}")
        if len(root.children) >= NODES_MAX:
            raise Bad(where, "has more lines than any configuration")
        # A comment behind a value has a space before it; a # within a value has none.
        Node(match[1], where, re.sub(r"\s#.*$", "", match[2]).strip().strip('"'), root)
    return root


# -- xml ---------------------------------------------------------------------------------------------------------------
#
# XML as nodes, read by expat.
#
# Rules:
# - No entity is declared or fetched: a file that declares one is refused, with the line. So nothing grows, and nothing
#   outside the file is read.
# - Prefixes of names (``amq:broker``) are left out, and so are declarations of namespaces and schemas.
# - An ellipsis that stands by itself, as in manuals (``<broker ... >``), is left out. It is no setting.
# - ``<maessageAge>`` may be closed by ``</messageAge>``: Qpid's document about slow consumers prints it so.


_ELLIPSIS = re.compile(rb"(?<=[\s>])(\.\.\.|\xe2\x80\xa6)(?=[\s<>/])")
_MISPRINT = re.compile(rb"(<maessageAge>[^<]*)</messageAge>")
TEXT_CHARS_MAX = 10_000
"""More of the text of one element is no value, and is left out."""
_DECLARATIONS = ("xmlns", "xmlns:", "xsi:")


def read_xml(file: File) -> Node:
    """Reads a file; the root node has its outermost element as its only child. Raises Bad."""
    return _XmlReader(file).read()


class _XmlReader:
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


# -- json --------------------------------------------------------------------------------------------------------------
#
# JSON as nodes. Python's own reader says whether it is valid; the lines are those of the reader of blocks.


def read_json(file: File) -> Node:
    """Reads a file. Raises Bad."""
    try:
        json.loads(file.text())
    except json.JSONDecodeError as error:
        raise Bad(Where(file.name, error.lineno), f"is not JSON: {error.msg[:1].lower()}{error.msg[1:]}") from None
    except RecursionError:
        raise Bad(Where(file.name, 1), "is nested too deep") from None
    except ValueError:
        raise Bad(Where(file.name, 1), "has a number of too many digits") from None
    return read_braces(file)
