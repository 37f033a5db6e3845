"""The syntax of selectors: parses text to a tree, or raises an error that says how to correct the text."""

from __future__ import annotations

from functools import cache

from lark import Lark, Token, Tree, UnexpectedCharacters, UnexpectedToken

from headway.core.base import HeadwayError, Reason

MAX_SELECTOR_CHARS = 8192


class BadSelector(HeadwayError):
    """A selector that does not parse. ``position`` counts characters from 1."""

    reason = Reason.PROTOCOL_ERROR

    def __init__(self, text: str, position: int) -> None:
        # The error is one line of text, even if the selector has control characters.
        printable = "".join(character if character.isprintable() else "?" for character in text)
        super().__init__(f"selector, character {position}: {printable}")
        self.position = position


_GRAMMAR = r"""
?start: disjunction
?disjunction: conjunction (_OR conjunction)*
?conjunction: negation (_AND negation)*
?negation: NOT negation -> negate
    | comparison
?comparison: sum
    | sum COMPARE sum -> compare
    | sum [NOT] _BETWEEN sum _AND sum -> between
    | sum [NOT] _IN "(" choice ("," choice)* ")" -> among
    | sum [NOT] _LIKE STRING [_ESCAPE STRING] -> like
    | sum _IS [NOT] _NULL -> null
?sum: product
    | sum SIGN product -> arithmetic
?product: unary
    | product TIMES unary -> arithmetic
?unary: SIGN unary -> sign
    | primary
?choice: literal
    | SIGN NUMBER -> signed
?primary: literal
    | TRUTH -> truth
    | NAME -> name
    | "(" disjunction ")"
?literal: NUMBER -> number
    | STRING -> text

COMPARE: "=" | "<>" | "!=" | "<=" | ">=" | "<" | ">"
SIGN: "+" | "-"
TIMES: "*" | "/"
_OR.2: /OR(?![\w$])/i
_AND.2: /AND(?![\w$])/i
NOT.2: /NOT(?![\w$])/i
_BETWEEN.2: /BETWEEN(?![\w$])/i
_IN.2: /IN(?![\w$])/i
_LIKE.2: /LIKE(?![\w$])/i
_ESCAPE.2: /ESCAPE(?![\w$])/i
_IS.2: /IS(?![\w$])/i
_NULL.2: /NULL(?![\w$])/i
TRUTH.2: /(TRUE|FALSE)(?![\w$])/i
NUMBER: /(0[xX][0-9a-fA-F]+[lL]?|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[lLfFdD]?)(?![\w$])/
STRING: /'([^']|'')*'/
NAME: /(([^\W\d]|\$)[\w$]*|"([^"]|"")+")(\.([\w$]+|"([^"]|"")+"))*/
%ignore /\s+/
"""
RESERVED = {"OR", "AND", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE"}


@cache
def _parser() -> Lark:
    # The basic lexer keeps reserved words reserved everywhere; the contextual lexer would read AND as a name.
    return Lark(_GRAMMAR, parser="lalr", lexer="basic", maybe_placeholders=True)


def prepare_selectors() -> None:
    """Builds the parser, which takes a tenth of a second. Called before there are clients: all of them would wait while
    the first selector is read."""
    _parser()


_HINTS = {
    "'": "this text lacks its closing '", '"': 'this name lacks its closing "', "&": "write AND", "|": "write OR",
    "!": "write NOT, or <> for unequal",
}  # fmt: skip


def _helpful(text: str, error: UnexpectedCharacters | UnexpectedToken) -> BadSelector:
    if isinstance(error, UnexpectedCharacters):
        at = error.pos_in_stream or 0
        return BadSelector(_HINTS.get(text[at], f"{text[at]!a} has no meaning here"), at + 1)
    token = error.token
    ended = token.type == "$END"
    at = len(text) if ended else token.start_pos or 0
    found = "the end" if ended else str(token)[:40]
    expected = error.expected
    if token.type == "COMPARE" and text[at - 1 : at] == "=":
        return BadSelector("equal is written with one =", at + 1)
    if token.type == "_NULL" and "NAME" in expected:
        return BadSelector("NULL equals nothing; write IS NULL or IS NOT NULL", at + 1)
    if "NAME" in expected:
        wanted = "a name or value"
    elif "NUMBER" in expected:
        wanted = "a text or number" if "STRING" in expected else "a number"
    elif "STRING" in expected:
        wanted = "a text in single quotes"
    elif expected & {"_AND", "_OR", "$END"}:
        wanted = "a comparison, AND, OR or the end"
    else:
        signs = {"LPAR": "(", "RPAR": ")", "COMMA": ","}
        wanted = " or ".join(sorted(signs.get(name, name.strip("_")) for name in expected))
    return BadSelector(f"{wanted} should stand here, not {found}", at + 1)


def parse(text: str) -> Tree[Token]:
    """Parses ``text`` by the grammar above."""
    if len(text) > MAX_SELECTOR_CHARS:
        raise BadSelector(f"{len(text)} characters, {MAX_SELECTOR_CHARS} are allowed", MAX_SELECTOR_CHARS + 1)
    try:
        return _parser().parse(text)
    except (UnexpectedCharacters, UnexpectedToken) as error:
        raise _helpful(text, error) from None
