"""Building: a selector is made of its text, once."""

from __future__ import annotations

import re
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from lark import Token, v_args
from lark.exceptions import VisitError
from lark.visitors import Transformer_NonRecursive

from headway.core.message import NOT_JSON, field_reader, resolve
from headway.core.selector import terms
from headway.core.selector.like import LikePattern
from headway.core.selector.selector import Reader, Selector
from headway.core.selector.syntax import RESERVED, BadSelector, parse
from headway.core.selector.terms import OWN_NAMES, Evaluator, RecordView

MAX_DEPTH = 64
TERMS_A_UNIT = 16
"""So many terms are as much work as one selector with few."""


@lru_cache(maxsize=1024)
def _reader(names: tuple[str, ...]) -> Reader:
    return field_reader(names)


_PART = re.compile(r'"((?:[^"]|"")+)"|([\w$]+)')
_PLAIN_FIRST = re.compile(r"(?:[^\W\d]|\$)[\w$]*")
_PLAIN = re.compile(r"[\w$]+")

# Precedence of expressions: an operand of lower precedence than its position needs gets parentheses.
_LOOSE, _CONJOINED, _NEGATED, _COMPARED, _SUMMED, _MULTIPLIED, _SIGNED, _CLOSED = range(8)


class _Expression(NamedTuple):
    """An expression: its normalised text, and its kind: number, text, truth, or any (known only per record)."""

    text: str
    binds: int
    kind: str
    evaluate: Evaluator
    at: int
    depth: int = 1
    constant: Any = None
    parts: tuple[_Expression, ...] = ()
    """Operands of AND or OR; a chain of one operator is flat, whatever its parentheses."""

    def within(self, binds: int) -> str:
        return self.text if self.binds >= binds else f"({self.text})"


def _depth(*nodes: _Expression) -> int:
    """Returns the depth of an expression with these operands. It is limited, because closures nest as deep."""
    depth = 1 + max(node.depth for node in nodes)
    if depth > MAX_DEPTH:
        raise BadSelector(f"nested more than {MAX_DEPTH} deep", nodes[0].at)
    return depth


def _condition(node: _Expression) -> Evaluator:
    """Returns the evaluator of an expression that is used as a condition."""
    if node.kind == "truth":
        return node.evaluate
    if node.kind != "any":
        raise BadSelector(f"{node.text[:40]} is a {node.kind}, not a condition; compare it with something", node.at)
    evaluate, truth = node.evaluate, terms.truth
    return lambda view: truth(evaluate(view))


def _check_kinds(sign: str, left: _Expression, right: _Expression) -> None:
    kinds = {left.kind, right.kind} - {"any"}
    if len(kinds) > 1:
        raise BadSelector(f"a {left.kind} compared with a {right.kind} is never true", left.at)
    if kinds == {"truth"} and sign not in ("=", "<>"):
        raise BadSelector(f"truth values have no order: {sign} cannot compare them", left.at)


def _check_number(node: _Expression) -> None:
    if node.kind not in ("number", "any"):
        raise BadSelector(f"{node.text[:40]} is a {node.kind}; only numbers can be reckoned with", node.at)


def _at(token: Token) -> int:
    return (token.start_pos or 0) + 1


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _unquote(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def _constant(value: int | float | str | bool, at: int) -> _Expression:
    if isinstance(value, str):
        return _Expression(_quote(value), _CLOSED, "text", lambda view: value, at, constant=value)
    if isinstance(value, bool):
        return _Expression("TRUE" if value else "FALSE", _CLOSED, "truth", lambda view: value, at, constant=value)
    if value in (float("inf"), -float("inf")):
        raise BadSelector("a number too large to reckon with", at)
    binds = _CLOSED if value >= 0 else _SIGNED
    return _Expression(repr(value), binds, "number", lambda view: value, at, constant=value)


@v_args(inline=True)
class _Builder(Transformer_NonRecursive[Token, _Expression]):
    """Turns a parse tree into expressions, and collects the outermost fields; ``finish`` makes the reader for these."""

    def __init__(self) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        """The reader's attribute for each outermost field, by name."""
        self.read: Any = None
        self.terms = 0.0
        """Names, and pieces of LIKE patterns by what a search for them compares."""

    def finish(self, node: _Expression) -> Selector:
        evaluate = _condition(node)
        if self.fields:
            self.read = _reader(tuple(self.fields))
        return Selector(node.text, evaluate, self.read, 1 + int(self.terms) // TERMS_A_UNIT)

    def number(self, token: Token) -> _Expression:
        digits = token.lower()
        try:
            if digits.startswith("0x"):
                return _constant(int(digits.rstrip("l"), 16), _at(token))
            digits = digits.rstrip("lfd")
            return _constant(int(digits) if digits.isdigit() else float(digits), _at(token))
        except (ValueError, OverflowError):  # more digits than Python converts
            raise BadSelector("a number too large to reckon with", _at(token)) from None

    def signed(self, sign: Token, digits: Token) -> _Expression:
        return self.sign(sign, self.number(digits))

    def text(self, token: Token) -> _Expression:
        return _constant(_unquote(token), _at(token))

    def truth(self, token: Token) -> _Expression:
        return _constant(token.upper() == "TRUE", _at(token))

    def name(self, token: Token) -> _Expression:
        way = [quoted.replace('""', '"') if quoted else plain for quoted, plain in _PART.findall(token)]
        shown = [part if _PLAIN.fullmatch(part) else '"' + part.replace('"', '""') + '"' for part in way]
        if not _PLAIN_FIRST.fullmatch(way[0]) or way[0].upper() in RESERVED:
            shown[0] = '"' + way[0].replace('"', '""') + '"'
        first, rest, whole = way[0], way[1:], ".".join(way)
        get = attrgetter(self.fields.setdefault(first, f"f{len(self.fields)}"))
        own = whole in OWN_NAMES and not rest
        self.terms += 1

        def evaluate(view: RecordView) -> object:
            text = view.user.get(whole)
            if text is not None:
                return terms.UntypedText(text)
            fields = view.fields
            if fields is None:
                try:
                    fields = self.read(view.payload)
                except NOT_JSON:
                    fields = False
                view.fields = fields
            value = None if fields is False else get(fields)
            if rest:
                value = resolve(value, rest)
            return view.own(whole) if own and value is None else value

        return _Expression(".".join(shown), _CLOSED, "any", evaluate, _at(token))

    def sign(self, sign: Token, operand: _Expression) -> _Expression:
        _check_number(operand)
        at = _at(sign)
        if operand.constant is not None:
            return _constant(-operand.constant if sign == "-" else operand.constant, at)
        evaluate = terms.arithmetic(str(sign), lambda view: 0, operand.evaluate)
        return _Expression(sign + operand.within(_SIGNED), _SIGNED, "number", evaluate, at, _depth(operand))

    def arithmetic(self, left: _Expression, sign: Token, right: _Expression) -> _Expression:
        _check_number(left)
        _check_number(right)
        binds = _SUMMED if sign in "+-" else _MULTIPLIED
        text = f"{left.within(binds)} {sign} {right.within(binds + 1)}"
        evaluate = terms.arithmetic(str(sign), left.evaluate, right.evaluate)
        return _Expression(text, binds, "number", evaluate, left.at, _depth(left, right))

    def compare(self, left: _Expression, sign: Token, right: _Expression) -> _Expression:
        sense = "<>" if sign == "!=" else str(sign)
        _check_kinds(sense, left, right)
        text = f"{left.within(_SUMMED)} {sense} {right.within(_SUMMED)}"
        evaluate = terms.comparison(sense, left.evaluate, right.evaluate, right.constant)
        return _Expression(text, _COMPARED, "truth", evaluate, left.at, _depth(left, right))

    def _test(
        self, value: _Expression, negated: Token | None, words: str, evaluate: Evaluator, *others: _Expression
    ) -> _Expression:
        text = f"{value.within(_SUMMED)} {'NOT ' if negated else ''}{words}"
        evaluate = terms.negation(evaluate) if negated else evaluate
        return _Expression(text, _COMPARED, "truth", evaluate, value.at, _depth(value, *others))

    def between(self, value: _Expression, negated: Token | None, low: _Expression, high: _Expression) -> _Expression:
        for bound in (low, high):
            _check_kinds(">=", value, bound)
        words = f"BETWEEN {low.within(_SUMMED)} AND {high.within(_SUMMED)}"
        return self._test(value, negated, words, terms.between(value.evaluate, low.evaluate, high.evaluate), low, high)

    def among(self, value: _Expression, negated: Token | None, *choices: _Expression) -> _Expression:
        for choice in choices:
            _check_kinds("=", value, choice)
        words = f"IN ({', '.join(choice.text for choice in choices)})"
        evaluate = terms.among(value.evaluate, [choice.constant for choice in choices])
        return self._test(value, negated, words, evaluate)

    def like(self, value: _Expression, negated: Token | None, pattern: Token, escape: Token | None) -> _Expression:
        if value.kind not in ("text", "any"):
            raise BadSelector(f"{value.text[:40]} is a {value.kind}; LIKE is for texts", value.at)
        try:
            like = LikePattern(_unquote(pattern), None if escape is None else _unquote(escape))
        except ValueError as wrong:
            raise BadSelector(str(wrong), _at(pattern)) from None
        self.terms += like.compared
        words = f"LIKE {pattern}" + (f" ESCAPE {escape}" if escape is not None else "")
        return self._test(value, negated, words, terms.like(value.evaluate, like))

    def null(self, value: _Expression, negated: Token | None) -> _Expression:
        text = f"{value.within(_SUMMED)} IS {'NOT ' if negated else ''}NULL"
        of, wanted = value.evaluate, negated is None
        return _Expression(text, _COMPARED, "truth", lambda view: (of(view) is None) is wanted, value.at, _depth(value))

    def negate(self, word: Token, operand: _Expression) -> _Expression:
        evaluate = terms.negation(_condition(operand))
        return _Expression(f"NOT {operand.within(_NEGATED)}", _NEGATED, "truth", evaluate, _at(word), _depth(operand))

    def _chain(self, nodes: tuple[_Expression, ...], word: str, binds: int, decides: bool) -> _Expression:
        flat = [part for node in nodes for part in (node.parts if node.binds == binds else (node,))]
        text = f" {word} ".join(part.within(binds + 1) for part in flat)
        evaluate = terms.chain([_condition(part) for part in flat], decides)
        return _Expression(text, binds, "truth", evaluate, flat[0].at, _depth(*flat), parts=tuple(flat))

    def conjunction(self, *nodes: _Expression) -> _Expression:
        return self._chain(nodes, "AND", _CONJOINED, False)

    def disjunction(self, *nodes: _Expression) -> _Expression:
        return self._chain(nodes, "OR", _LOOSE, True)


@lru_cache(maxsize=1024)
def compile_selector(text: str) -> Selector:
    """Compiles a selector; :class:`BadSelector` says what is wrong and where."""
    builder = _Builder()
    try:
        return builder.finish(builder.transform(parse(text)))
    except VisitError as error:
        if isinstance(error.orig_exc, BadSelector):
            raise error.orig_exc from None
        raise


def cost_of(text: str | None) -> int:
    """Returns the work of holding a record against a selector, or against none; 1 for a few terms."""
    return compile_selector(text).cost if text else 1
