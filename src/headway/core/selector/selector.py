"""Selectors: a subscriber's condition on the records that it wants, in the SQL-92 subset of JMS.

    origin = 'JFK' AND (delay > 30 OR carrier IN ('UA', 'DL')) AND tailnum LIKE 'N1%' AND dest IS NOT NULL

Theory of operation. The text is parsed once, into closures (``terms``) and into a normalised text. Selectors with the
same normalised text are equal and share a lane. A record's payload is decoded as JSON at most once, and only when an
identifier needs a field; only the outermost fields that the selector names are decoded. Rules:

- An identifier stands for the first that exists of: the user property of that name; the field of the JSON payload
  (a.b.c leads into objects and arrays; a name that is no plain word is written in double quotes, "x-y"); ``topic``,
  ``priority`` or ``key``. If none exists it is NULL. A payload that is not JSON has no fields.
- Logic has three values: a comparison with NULL is unknown, and only records for which the condition is true are
  selected.
- Comparisons of values of different types are false: ``name = 5`` and ``name <> 5`` are both false for a text, as in
  JMS. User properties have no types on the wire; they count as numbers or truth values where these are needed.
- Extensions of JMS: ``<`` and the like compare texts character by character; IN takes numbers; ``!=`` means ``<>``.
- ``/`` is true division (7 / 2 is 3.5), as JSON does not tell 7 from 7.0. Dividing by zero gives NULL.
- No selector makes the broker work for long: length and depth are limited, LIKE does not backtrack, and integers beyond
  64 bits become floating point. LIKE with "_" between other characters, after a "%", is unknown for long texts: the
  length of the text times that of the part between two "%" may be 262,144, and four times as much for all LIKEs of a
  selector.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from lark import Token, v_args
from lark.exceptions import VisitError
from lark.visitors import Transformer_NonRecursive

from headway.core.message import NOT_JSON, KeyExtractor, Record, Run, field_reader, resolve
from headway.core.selector import terms
from headway.core.selector.syntax import MAX_SELECTOR_CHARS, RESERVED, BadSelector, parse
from headway.core.selector.terms import OWN_NAMES, Evaluator, RecordView

__all__ = ["MAX_DEPTH", "MAX_SELECTOR_CHARS", "BadSelector", "Selector", "compile_selector", "priority_of"]

MAX_DEPTH = 64
TERMS_A_UNIT = 16
"""So many terms are as much work as one selector with few."""


Reader = Callable[[bytes], Any]
Decoded = dict[Reader, list[Any]]
"""The fields of each record of a run, by what reads them: selectors that name the same fields have the same reader."""


@lru_cache(maxsize=1024)
def _reader(names: tuple[str, ...]) -> Reader:
    return field_reader(names)


def priority_of(record: Record) -> int:
    """Returns the priority from 0 to 9, from the user property "priority"; 4 if that is missing or invalid."""
    return terms.priority_in(record.properties)


class Selector:
    """A compiled selector. Selectors are equal and hashable by their normalised texts."""

    __slots__ = ("_evaluate", "_read", "cost", "text")

    def __init__(self, text: str, evaluate: Evaluator, read: Reader | None, cost: int) -> None:
        self.text = text
        self.cost = cost
        """The work of holding it against a record; 1 for a few terms."""
        self._evaluate = evaluate
        self._read = read
        """Finds the fields that the selector names; None: it names none."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Selector) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"<selector {self.text}>"

    def matches(self, record: Record, key_of: KeyExtractor | None = None) -> bool:
        """Tells whether the record satisfies the selector. ``key_of`` gives the value of the identifier ``key``."""
        return self._evaluate(RecordView(record.topic, record.properties, record.payload, key_of)) is True

    def select(
        self, run: Run, key_of: KeyExtractor | None = None, decoded: Decoded | None = None
    ) -> list[int]:
        """Returns the indexes of the run's records that satisfy the selector, without making record objects.
        ``decoded``: what other selectors have decoded of this run; this one adds to it."""
        evaluate, data, wanted = self._evaluate, run.data, []
        view = RecordView(run.topic, run.properties, b"", key_of)
        if decoded is None or self._read is None:
            for index, (body, end) in enumerate(zip(run.bodies, run.ends, strict=True)):
                view.show(data[body:end])
                if evaluate(view) is True:
                    wanted.append(index)
            return wanted
        fields = decoded.setdefault(self._read, [None] * len(run.ends))
        for index, (body, end) in enumerate(zip(run.bodies, run.ends, strict=True)):
            view.show(data[body:end], fields[index])
            if evaluate(view) is True:
                wanted.append(index)
            fields[index] = view.fields
        return wanted


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
    known = terms.number(value)
    if known is None or known in (float("inf"), -float("inf")):
        raise BadSelector("a number too large to reckon with", at)
    binds = _CLOSED if known >= 0 else _SIGNED
    return _Expression(repr(known), binds, "number", lambda view: known, at, constant=known)


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
            like = terms.LikePattern(_unquote(pattern), None if escape is None else _unquote(escape))
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
