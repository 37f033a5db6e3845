"""The words of selectors: splits text into tokens, or raises an error that says how to correct the text.

Each token is found by one regular expression, whose alternatives never give back what they took (the quantifiers are
possessive). So splitting takes linear time, whatever the text is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from headway.core.base import HeadwayError, Reason

MAX_SELECTOR_CHARS = 8192


class BadSelector(HeadwayError):
    """A selector that does not parse. ``position`` counts characters from 1."""

    reason = Reason.PROTOCOL_ERROR

    def __init__(self, text: str, position: int) -> None:
        self.text = text
        # The error is one line of text, even if the selector has control characters.
        printable = "".join(character if character.isprintable() else "?" for character in text)
        super().__init__(f"selector, character {position}: {printable}")
        self.position = position


class Token(NamedTuple):
    """A word, sign, name or value. ``at`` counts characters from 1."""

    kind: str
    """The reserved word or sign itself; NUMBER, STRING, NAME, TRUTH, COMPARE, SIGN (+ and -), TIMES (* and /), END."""
    text: str
    at: int


RESERVED = {"OR", "AND", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE"}
END = "END"
_NAME = r'(?:[^\W\d]|\$)[\w$]*+|"(?:[^"]|"")++"'
_TOKEN = re.compile(
    rf"""\s*+(?:
      (?P<WORD>(?i:{'|'.join(RESERVED)})(?![\w$]))
    | (?P<NUMBER>(?:0[xX][0-9a-fA-F]++[lL]?|(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?[lLfFdD]?)(?![\w$]))
    | (?P<STRING>'(?:[^']|'')*+')
    | (?P<NAME>(?:{_NAME})(?:\.(?:[\w$]++|"(?:[^"]|"")++"))*+)
    | (?P<COMPARE><>|!=|<=|>=|[=<>])
    | (?P<SIGN>[+-])
    | (?P<TIMES>[*/])
    | (?P<MARK>[(),])
    )""",
    re.VERBOSE,
)
_SPACE = re.compile(r"\s*+")
_HINTS = {
    "'": "this text lacks its closing '", '"': 'this name lacks its closing "', "&": "write AND", "|": "write OR",
    "!": "write NOT, or <> for unequal",
}  # fmt: skip


def tokens(text: str) -> Iterator[Token]:
    """Yields the tokens of a selector; the last one is END. Raises BadSelector."""
    at = 0
    while (found := _TOKEN.match(text, at)) is not None:
        kind = found.lastgroup or ""
        word, start, at = found[kind], found.start(kind), found.end()
        if kind == "WORD":
            kind = word.upper()
            if kind in ("TRUE", "FALSE"):
                kind = "TRUTH"
        yield Token(word if kind == "MARK" else kind, word, start + 1)
    space = _SPACE.match(text, at)
    at = at if space is None else space.end()
    if at < len(text):
        raise BadSelector(_HINTS.get(text[at], f"{text[at]!a} has no meaning here"), at + 1)
    yield Token(END, "", at + 1)
