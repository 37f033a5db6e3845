"""Blocks in braces, as NATS and JSON write them: ``key: value``, ``key = value``, ``key value``, ``key { … }``, and
lists in brackets.

A list becomes a node with a child ``item`` for each of its values. Comments begin with ``#`` or ``//``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from headway.migration.formats.file import Bad, File
from headway.migration.formats.node import DEPTH_MAX, ITEM, NODES_MAX, Kind, Node, Where

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
