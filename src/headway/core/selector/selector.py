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
- Names of JMS's header fields (JMSType, JMSPriority …) stand for these, in records of all protocols (syntax.py).
- Comparisons of values of different types are false: ``name = 5`` and ``name <> 5`` are both false for a text, as in
  JMS. A *typed* selector, that of a consumer whose protocol has types, sees user properties as their senders typed
  them: texts of MQTT and STOMP are texts. In any other selector user properties have no types; they count as numbers
  or truth values where these are needed, for their consumers could not say otherwise.
- Extensions of JMS: ``<`` and the like compare texts character by character; IN takes numbers; ``!=`` means ``<>``.
- ``/`` is true division (7 / 2 is 3.5), as JSON does not tell 7 from 7.0. Dividing by zero gives NULL.
- No selector makes the broker work for long: length and depth are limited, LIKE does not backtrack, and integers beyond
  64 bits become floating point. LIKE with "_" between other characters, after a "%", is unknown for long texts: the
  length of the text times that of the part between two "%" may be 262,144, and four times as much for all LIKEs of a
  selector.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import inf, isfinite, isinf
from operator import attrgetter
from struct import Struct
from typing import Any, NamedTuple

from headway.core.base import HeadwayError, Reason, RecentCache
from headway.core.message import NOT_JSON, KeyExtractor, Record, Run, field_reader, resolve
from headway.core.selector import syntax as terms
from headway.core.selector.syntax import (
    END,
    FORMER,
    HEADER_FIELDS,
    MAX_SELECTOR_CHARS,
    OWN_NAMES,
    RESERVED,
    BadField,
    BadSelector,
    Evaluator,
    Fields,
    LikePattern,
    RecordView,
    Token,
    is_reserved,
    priority_in,
    tokens,
    why_not,
)

# -- selector ----------------------------------------------------------------------------------------------------------


Reader = Callable[[bytes], Any]
Decoded = dict[Reader | None, list[Any]]
"""The fields of each record of a run, by what reads them: selectors that name the same fields have the same reader."""


def priority_of(record: Record) -> int:
    """Returns the priority from 0 to 9, from the user property "priority"; 4 if that is missing or invalid."""
    return priority_in(record.properties)


class Selector:
    """A compiled selector. Selectors are equal and hashable by their normalised texts."""

    __slots__ = ("_evaluate", "_read", "_reads_own", "bytes", "cost", "text")

    def __init__(
        self, text: str, evaluate: Evaluator, read: Reader | None, cost: int, size: int, *, reads_own: bool = False
    ) -> None:
        self.text = text
        self._reads_own = reads_own
        """Whether it names what may differ between the records of a run."""
        self.bytes = size
        """The memory that it takes up."""
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
        return self._evaluate(RecordView(record, record.payload, key_of)) is True

    def select(self, run: Run, decoded: Decoded, key_of: KeyExtractor | None = None) -> list[int]:
        """Returns the indexes of the run's records that satisfy the selector, without making record objects.
        ``decoded``: what other selectors have decoded of this run; this one adds to it."""
        evaluate, data, wanted = self._evaluate, run.data, []
        view, own = RecordView(run, b"", key_of), run.own if self._reads_own else None
        fields = decoded.setdefault(self._read, [None] * len(run.ends))
        for index, (body, end) in enumerate(zip(run.bodies, run.ends, strict=True)):
            view.show(data[body:end], fields[index])
            if own is not None:
                view.show_own(own.of(index))
            if evaluate(view) is True:
                wanted.append(index)
            fields[index] = view.fields
        return wanted


# -- ordering ----------------------------------------------------------------------------------------------------------
#
# Orderings of records: ``/delay DESC, topic``.
#
# A term is a field (syntax.py), and then ``ASC`` (the default) or ``DESC``. Rules:
#
# - Values of different types have an order, too: false, true, numbers, texts, and the reverse with DESC. Numbers are
#   compared as numbers, texts character by character. User properties, topics and keys are texts.
# - A record without the value (no such field, null, an object or array, a payload that is not JSON) comes last, with
# ASC
#   and with DESC.
# - Where all terms are equal, the record with the older change comes first. So an order never leaves two records open.
#
# A record's *rank* is its place as bytes, so that ranks compare in one step of C, and take up little. A value is
# written so that no value's bytes begin another's: a byte for its type; then 8 bytes for a number, whose bits are
# turned so that they compare as numbers do, and 2 for what a whole number is more than that; for a text its UTF-8 and
# an end. DESC inverts all of these bytes. A missing value is the highest byte.


MAX_TERMS = 8
MAX_ORDER_CHARS = 1024
EXACT = 2**53
"""Up to here each whole number is a float."""

_MISSING = b"\xff"
LAST_RANK = _MISSING * (MAX_TERMS + 9)
"""Behind the ranks of all records."""
_FALSE, _TRUE = b"\x01\x00", b"\x01\x01"
_NUMBER = Struct(">BQH")
_FLOAT, _BITS, _SEQUENCE = Struct(">d"), Struct(">Q"), Struct(">Q")
_SIGN, _ALL, _EVEN = 1 << 63, (1 << 64) - 1, 1 << 15
_INVERSE = bytes(range(255, -1, -1))


class BadOrder(HeadwayError):
    """An ordering that does not parse."""

    reason = Reason.PROTOCOL_ERROR


class Ordering:
    """A compiled ordering. ``by_offset`` is 1 or -1 if it is that of the offsets alone, which needs no comparison."""

    __slots__ = ("_down", "_fields", "by_offset", "names", "text")

    def __init__(self, text: str, names: Sequence[str], down: Sequence[bool]) -> None:
        """Raises :class:`BadField`."""
        self.text = text
        self.names = names
        self.by_offset = (-1 if down[0] else 1) if names[0] == "offset" else 0
        self._fields = Fields(names)
        self._down = down

    def rank(self, record: Record, key_of: KeyExtractor | None) -> bytes:
        """Returns the record's place: ranks compare as the records are ordered, and no two are equal."""
        return rank_of(self._fields.values(record, key_of), self._down) + _SEQUENCE.pack(record.sequence)


def rank_of(values: Sequence[object], down: Sequence[bool]) -> bytes:
    """Returns the place of a list of values; ``down`` tells of each whether it is ordered downwards."""
    return b"".join([place_of(value, down=one) for value, one in zip(values, down, strict=True)])


def place_of(value: object, *, down: bool = False) -> bytes:
    """Returns the place of a value among values of all types."""
    if isinstance(value, bool):
        place = _TRUE if value else _FALSE
    elif isinstance(value, (int, float)):
        place = _number(value)
    elif isinstance(value, str):
        place = b"\x03%b\x00\x01" % value.encode("utf-8", "surrogatepass").replace(b"\x00", b"\x00\xff")
    else:
        return _MISSING
    return place.translate(_INVERSE) if down else place


def nearest_float(value: int) -> float:
    """Returns the float that is nearest to a whole number of any length; infinity if it is larger than all of them."""
    try:
        return float(value)
    except OverflowError:
        return inf if value > 0 else -inf


def _number(value: float) -> bytes:
    more = 0
    if isinstance(value, int) and not -EXACT <= value <= EXACT:
        nearest = nearest_float(value)
        if isfinite(nearest):
            more = max(-_EVEN, min(value - int(nearest), _EVEN - 1))
        value = nearest
    bits: int = _BITS.unpack(_FLOAT.pack(value + 0.0))[0]  # there is one zero: -0.0 + 0.0 is 0.0
    return _NUMBER.pack(2, bits ^ (_ALL if bits & _SIGN else _SIGN), more + _EVEN)


@lru_cache(maxsize=256)
def compile_ordering(text: str) -> Ordering:
    """Compiles an ordering; :class:`BadOrder` says what is wrong."""
    names, down = parse_terms(text)
    try:
        return Ordering(text, names, down)
    except BadField as error:
        raise BadOrder(f"order: {error}; then ASC or DESC") from None


def parse_terms(text: str) -> tuple[list[str], list[bool]]:
    """Returns the names of an ordering's terms, and of each whether it is ordered downwards. Raises BadOrder."""
    if len(text) > MAX_ORDER_CHARS:
        raise BadOrder(f"order: {len(text)} characters, {MAX_ORDER_CHARS} are allowed")
    written = text.split(",")
    if len(written) > MAX_TERMS:
        raise BadOrder(f"order: {len(written)} terms, {MAX_TERMS} are allowed")
    names, down = [], []
    for term in written:
        name, _, direction = term.strip().rpartition(" ")
        if direction.upper() not in ("ASC", "DESC") or not name:
            name, direction = term.strip(), "ASC"
        names.append(name.strip())
        down.append(direction.upper() == "DESC")
    return names, down


# -- building ----------------------------------------------------------------------------------------------------------
#
# Building: a selector is made of its text, once.
#
# The parser weighs operators by precedence and has a stack of its own, so that neither parentheses nor long chains take
# up Python's. It was a generated one, which took ten times as long; a client that changes its selector again and again
# made all others wait for that.


MAX_DEPTH = 64
CHARS_A_UNIT = 2
"""So many characters are compiled in a unit of work, at worst."""
TERMS_A_UNIT = 16
"""So many terms are as much work as one selector with few."""


SELECTOR_BYTES, NAME_BYTES, FIELD_BYTES, PART_BYTES, LIKE_BYTES, LIKE_CHAR_BYTES = 4000, 1200, 300, 450, 1000, 80
"""Measured sizes in memory: of a selector, of each name and operator in it, of the reader of a field, and of LIKE, with
each character of its pattern."""
CHOICE_BYTES = 150
COMPILED_BYTES_MAX = 8_000_000
READERS_BYTES_MAX = 2_000_000

_readers: RecentCache[tuple[str, ...], Reader] = RecentCache(
    lambda names: field_reader(names), READERS_BYTES_MAX,
    lambda names, _: SELECTOR_BYTES + sum(FIELD_BYTES + 4 * len(name) for name in names),
)  # fmt: skip
"""Selectors of the same fields share a reader, which decodes a record once for all of them (``Decoded``)."""


_PART = re.compile(r'"((?:[^"]|"")+)"|([\w$]+)')
_PLAIN_FIRST = re.compile(r"(?:[^\W\d]|\$)[\w$]*")
_PLAIN = re.compile(r"[\w$]+")

# Precedence of expressions: an operand of lower precedence than its position needs gets parentheses.
_LOOSE, _CONJOINED, _NEGATED, _COMPARED, _SUMMED, _MULTIPLIED, _SIGNED, _CLOSED = range(8)
_OPENED = -1
"""The precedence of an open parenthesis, which nothing before its end passes."""


class _Expression(NamedTuple):
    """An expression: its normalised text, and its kind: number, text, truth, or any (known only per record)."""

    text: str
    binds: int
    kind: str
    evaluate: Evaluator
    at: int
    depth: int = 1
    constant: Any = None
    parts: Sequence[Evaluator] = ()
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


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _unquote(token: Token) -> str:
    return token.text[1:-1].replace("''", "'")


def _parts(name: str) -> tuple[list[str], str]:
    """Returns the parts of a name with dots or quotes, and its normal text."""
    way = [quoted.replace('""', '"') if quoted else plain for quoted, plain in _PART.findall(name)]
    shown = [part if _PLAIN.fullmatch(part) else '"' + part.replace('"', '""') + '"' for part in way]
    if not _PLAIN_FIRST.fullmatch(way[0]) or way[0].upper() in RESERVED:
        shown[0] = '"' + way[0].replace('"', '""') + '"'
    return way, ".".join(shown)


def _constant(value: int | float | str | bool, at: int) -> _Expression:
    if isinstance(value, str):
        return _Expression(_quote(value), _CLOSED, "text", lambda view: value, at, constant=value)
    if isinstance(value, bool):
        return _Expression("TRUE" if value else "FALSE", _CLOSED, "truth", lambda view: value, at, constant=value)
    if isinf(float(value)):
        raise BadSelector("a number too large to reckon with", at)
    binds = _CLOSED if value >= 0 else _SIGNED
    return _Expression(repr(value), binds, "number", lambda view: value, at, constant=value)


class _Builder:
    """Makes expressions, and collects the outermost fields; ``finish`` makes the reader for these."""

    def __init__(self, *, typed: bool) -> None:
        self._typed = typed
        self._reads_own = False
        self.fields: dict[str, str] = {}
        """The reader's attribute for each outermost field, by name."""
        self.read: Any = None
        self._names: dict[str, _Expression] = {}
        self.bytes = SELECTOR_BYTES
        """The memory that the selector takes up."""
        self.terms = 0.0
        """Names, LIKEs, and pieces of their patterns with what a search for them compares."""

    def finish(self, node: _Expression) -> Selector:
        evaluate = _condition(node)
        if self.fields:
            self.read = _readers[tuple(self.fields)]
        size, cost = self.bytes + 8 * len(node.text), 1 + int(self.terms) // TERMS_A_UNIT
        text = TYPED + node.text if self._typed else node.text
        return Selector(text, evaluate, self.read, cost, size, reads_own=self._reads_own)

    def number(self, token: Token) -> _Expression:
        digits = token.text.lower()
        try:
            if digits.startswith("0x"):
                return _constant(int(digits.rstrip("l"), 16), token.at)
            digits = digits.rstrip("lfd")
            return _constant(int(digits) if digits.isdigit() else float(digits), token.at)
        except (ValueError, OverflowError):  # more digits than Python converts, or than a float has
            raise BadSelector("a number too large to reckon with", token.at) from None

    def text(self, token: Token) -> _Expression:
        return _constant(_unquote(token), token.at)

    def truth(self, token: Token) -> _Expression:
        return _constant(token.text.upper() == "TRUE", token.at)

    def name(self, token: Token) -> _Expression:
        self.terms += 1
        self.bytes += PART_BYTES
        known = self._names.get(token.text)
        if known is None:
            known = self._names[token.text] = self._name(token)
        return known._replace(at=token.at)

    def _name(self, token: Token) -> _Expression:
        self.bytes += NAME_BYTES + 16 * len(token.text)
        way, shown = [token.text], token.text
        if not _PLAIN_FIRST.fullmatch(token.text):
            way, shown = _parts(token.text)
        first, rest, whole = way[0], way[1:], ".".join(way)
        if is_reserved(whole) or whole in FORMER:
            return self._header_field(FORMER.get(whole, whole), token)
        get = attrgetter(self.fields.setdefault(first, f"f{len(self.fields)}"))
        own = whole in OWN_NAMES and not rest
        typed = self._typed

        def evaluate(view: RecordView) -> object:
            if typed:
                said = view.typed(whole)
                if said is not None:
                    return said
            elif (text := view.user.get(whole)) is not None:
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

        return _Expression(shown, _CLOSED, "any", evaluate, token.at)

    def _header_field(self, name: str, token: Token) -> _Expression:
        field = HEADER_FIELDS.get(name)
        if field is None:
            raise BadSelector(why_not(name), token.at)
        self._reads_own |= field.differs
        read = field.read
        return _Expression(name, _CLOSED, field.kind, lambda view: read(view.said, view.message), token.at)

    def sign(self, sign: Token, operand: _Expression) -> _Expression:
        _check_number(operand)
        if operand.constant is not None:
            value = -operand.constant if sign.text == "-" else operand.constant
            return _constant(value, sign.at)._replace(depth=_depth(operand))
        self.bytes += PART_BYTES
        evaluate = terms.arithmetic(sign.text, lambda view: 0, operand.evaluate)
        text = sign.text + operand.within(_SIGNED)
        return _Expression(text, _SIGNED, "number", evaluate, sign.at, _depth(operand))

    def arithmetic(self, left: _Expression, sign: Token, right: _Expression) -> _Expression:
        self.bytes += PART_BYTES
        _check_number(left)
        _check_number(right)
        binds = _SUMMED if sign.kind == "SIGN" else _MULTIPLIED
        text = f"{left.within(binds)} {sign.text} {right.within(binds + 1)}"
        evaluate = terms.arithmetic(sign.text, left.evaluate, right.evaluate)
        return _Expression(text, binds, "number", evaluate, left.at, _depth(left, right))

    def compare(self, left: _Expression, sign: Token, right: _Expression) -> _Expression:
        self.bytes += PART_BYTES
        sense = "<>" if sign.text == "!=" else sign.text
        _check_kinds(sense, left, right)
        text = f"{left.within(_SUMMED)} {sense} {right.within(_SUMMED)}"
        evaluate = terms.comparison(sense, left.evaluate, right.evaluate, right.constant)
        return _Expression(text, _COMPARED, "truth", evaluate, left.at, _depth(left, right))

    def _test(
        self, value: _Expression, negated: Token | None, words: str, evaluate: Evaluator, *others: _Expression
    ) -> _Expression:
        self.bytes += (2 + len(others)) * PART_BYTES
        text = f"{value.within(_SUMMED)} {'NOT ' if negated else ''}{words}"
        evaluate = terms.negation(evaluate) if negated else evaluate
        return _Expression(text, _COMPARED, "truth", evaluate, value.at, _depth(value, *others))

    def between(self, value: _Expression, low: _Expression, high: _Expression, negated: Token | None) -> _Expression:
        for bound in (low, high):
            _check_kinds(">=", value, bound)
        words = f"BETWEEN {low.within(_SUMMED)} AND {high.within(_SUMMED)}"
        return self._test(value, negated, words, terms.between(value.evaluate, low.evaluate, high.evaluate), low, high)

    def among(self, value: _Expression, negated: Token | None, choices: list[_Expression]) -> _Expression:
        self.bytes += CHOICE_BYTES * len(choices)
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
            raise BadSelector(str(wrong), pattern.at) from None
        self.terms += 1 + like.searches + like.compared
        self.bytes += LIKE_BYTES + LIKE_CHAR_BYTES * len(pattern.text)
        words = f"LIKE {pattern.text}" + (f" ESCAPE {escape.text}" if escape is not None else "")
        return self._test(value, negated, words, terms.like(value.evaluate, like))

    def null(self, value: _Expression, negated: Token | None) -> _Expression:
        text = f"{value.within(_SUMMED)} IS {'NOT ' if negated else ''}NULL"
        self.bytes += PART_BYTES
        of, wanted = value.evaluate, negated is None
        return _Expression(text, _COMPARED, "truth", lambda view: (of(view) is None) is wanted, value.at, _depth(value))

    def negate(self, word: Token, operand: _Expression) -> _Expression:
        self.bytes += PART_BYTES
        evaluate = terms.negation(_condition(operand))
        return _Expression(f"NOT {operand.within(_NEGATED)}", _NEGATED, "truth", evaluate, word.at, _depth(operand))

    def chain(self, binds: int, nodes: list[_Expression]) -> _Expression:
        """Returns a chain of AND or OR. What a chain of the same operator has joined is taken as it is, so one with
        many parentheses takes no longer than a flat one."""
        self.bytes += PART_BYTES + 8 * len(nodes)
        parts, depth = list[Evaluator](), 0
        for node in nodes:
            if node.binds == binds:
                parts += node.parts
                depth = max(depth, node.depth)
            else:
                parts.append(_condition(node))
                depth = max(depth, _depth(node))
        text = (" AND " if binds == _CONJOINED else " OR ").join([node.within(binds) for node in nodes])
        evaluate = terms.chain(parts, binds == _LOOSE)
        return _Expression(text, binds, "truth", evaluate, nodes[0].at, depth, parts=parts)


class _Pending(NamedTuple):
    """An operator whose right operand is being read, or an open parenthesis."""

    binds: int
    word: Token
    operands: list[_Expression]
    """Operands before it: all of a chain of AND or OR; of BETWEEN also the lower bound, from its AND on."""
    negated: Token | None = None


_CONDITION_ENDS = "a comparison, AND, OR or the end"
_PRECEDENCES = {"TIMES": _MULTIPLIED, "SIGN": _SUMMED, "AND": _CONJOINED, "OR": _LOOSE}
_TESTS = ("COMPARE", "NOT", "BETWEEN", "IN", "LIKE", "IS")


class _Parser:
    """Reads operands and operators in turn. Operators wait on a stack until one comes that binds less."""

    def __init__(self, text: str, build: _Builder) -> None:
        self._text = text
        self._build = build
        self._tokens = tokens(text)
        self._token = next(self._tokens)
        """The first token that was not taken yet."""
        self._stack: list[_Pending] = []

    def parse(self) -> _Expression:
        value, is_test = self._operand(), False
        while True:
            kind = self._token.kind
            if kind == ")":
                value, is_test = self._close(value), False
            elif kind == END:
                value = self._reduced(value, _LOOSE)
                if self._stack:
                    raise self._unexpected(")")
                return value
            elif kind in _TESTS and not is_test:
                value, is_test = self._test(self._reduced(value, _SUMMED))
            elif kind in _PRECEDENCES and not (is_test and _PRECEDENCES[kind] > _COMPARED):
                value, is_test = self._operator(value, _PRECEDENCES[kind]), False
            else:
                raise self._unexpected(_CONDITION_ENDS)

    def _operand(self) -> _Expression:
        """Reads what stands before an operand, and the operand."""
        while True:
            token = self._token
            kind, above = token.kind, self._stack[-1].binds if self._stack else _OPENED
            if kind == "(":
                binds = _OPENED
            elif kind == "SIGN":
                binds = _SIGNED
            elif kind == "NOT" and above <= _NEGATED:
                binds = _NEGATED
            else:
                break
            self._stack.append(_Pending(binds, self._take(), []))
        if kind == "NAME":
            return self._build.name(self._take())
        if kind == "TRUTH":
            return self._build.truth(self._take())
        return self._literal("a name or value")

    def _literal(self, wanted: str) -> _Expression:
        if self._token.kind == "STRING":
            return self._build.text(self._take())
        return self._build.number(self._take("NUMBER", wanted))

    def _operator(self, value: _Expression, binds: int) -> _Expression:
        """Takes an operator between two operands, and reads the second."""
        word = self._token
        is_chain = binds in (_LOOSE, _CONJOINED)
        value = self._reduced(value, _SUMMED if word.kind == "AND" else binds + is_chain)
        pending = self._stack[-1] if self._stack else None
        if word.kind == "AND" and pending is not None and pending.word.kind == "BETWEEN" and len(pending.operands) == 1:
            pending.operands.append(value)
        else:
            value = self._reduced(value, binds + is_chain)
            pending = self._stack[-1] if self._stack else None
            if is_chain and pending is not None and pending.binds == binds:
                pending.operands.append(value)
            else:
                self._stack.append(_Pending(binds, word, [value]))
        self._take()
        return self._operand()

    def _test(self, value: _Expression) -> tuple[_Expression, bool]:
        """Takes a comparison, or a test of a value. Returns the next operand, or the test, and whether it is a test."""
        if self._stack and self._stack[-1].binds == _COMPARED:
            raise self._unexpected(_CONDITION_ENDS)
        if self._token.kind == "IS":
            self._take()
            negated = self._take() if self._token.kind == "NOT" else None
            self._take("NULL", "NULL" if negated else "NOT or NULL")
            return self._build.null(value, negated), True
        negated = self._take() if self._token.kind == "NOT" else None
        word = self._token
        if word.kind == "IN":
            self._take()
            return self._build.among(value, negated, self._choices()), True
        if word.kind == "LIKE":
            self._take()
            pattern, escape = self._take("STRING", "a text in single quotes"), None
            if self._token.kind == "ESCAPE":
                self._take()
                escape = self._take("STRING", "a text in single quotes")
            return self._build.like(value, negated, pattern, escape), True
        if word.kind != "BETWEEN" and (negated or word.kind != "COMPARE"):
            raise self._unexpected("BETWEEN or IN or LIKE")
        self._stack.append(_Pending(_COMPARED, self._take(), [value], negated))
        return self._operand(), False

    def _choices(self) -> list[_Expression]:
        self._take("(", "(")
        choices = list[_Expression]()
        while not choices or self._token.kind == ",":
            if choices:
                self._take()
            if self._token.kind == "SIGN":
                sign = self._take()
                choices.append(self._build.sign(sign, self._build.number(self._take("NUMBER", "a number"))))
            else:
                choices.append(self._literal("a text or number"))
        self._take(")", ") or ,")
        return choices

    def _close(self, value: _Expression) -> _Expression:
        value = self._reduced(value, _LOOSE)
        if not self._stack:
            raise self._unexpected(_CONDITION_ENDS)
        self._stack.pop()
        self._take()
        return value

    def _reduced(self, value: _Expression, binds: int) -> _Expression:
        """Returns the value of all operators that wait and bind as much as this, or more."""
        build = self._build
        while self._stack and self._stack[-1].binds >= binds:
            at, word, operands, negated = self._stack[-1]
            if at in (_LOOSE, _CONJOINED):
                value = build.chain(at, [*operands, value])
            elif at == _NEGATED:
                value = build.negate(word, value)
            elif word.kind == "BETWEEN":
                if len(operands) == 1:
                    raise self._unexpected("AND")
                value = build.between(operands[0], operands[1], value, negated)
            elif at == _COMPARED:
                value = build.compare(operands[0], word, value)
            elif at == _SIGNED:
                value = build.sign(word, value)
            else:
                value = build.arithmetic(operands[0], word, value)
            self._stack.pop()
        return value

    def _take(self, kind: str = "", wanted: str = "") -> Token:
        """Returns the next token, which must be of this kind."""
        token = self._token
        if kind and token.kind != kind:
            raise self._unexpected(wanted)
        if token.kind != END:
            self._token = next(self._tokens)
        return token

    def _unexpected(self, wanted: str) -> BadSelector:
        kind, text, at = self._token
        if kind == "COMPARE" and self._text[at - 2 : at - 1] == "=":
            return BadSelector("equal is written with one =", at)
        if kind == "NULL" and wanted == "a name or value":
            return BadSelector("NULL equals nothing; write IS NULL or IS NOT NULL", at)
        return BadSelector(f"{wanted} should stand here, not {'the end' if kind == END else text[:40]}", at)


TYPED = "typed: "
"""The prefix of typed selectors. It is no part of what the client wrote."""
_UNTYPED = "convert_string_expressions:"
"""ActiveMQ's word by which its clients ask for texts that count as numbers."""


def typed(text: str) -> str:
    """Returns a selector of a client whose protocol has types for properties, unless it asks to do without."""
    return text.removeprefix(_UNTYPED) if text.startswith(_UNTYPED) else TYPED + text


def _compile(text: str) -> Selector | BadSelector:
    build = _Builder(typed=text.startswith(TYPED))
    try:
        return build.finish(_Parser(text.removeprefix(TYPED), build).parse())
    except BadSelector as error:
        return BadSelector(error.text, error.position)  # without the frames of the parser


_compiled: RecentCache[str, Selector | BadSelector] = RecentCache(
    _compile, COMPILED_BYTES_MAX,
    lambda text, found: 4 * len(text) + (found.bytes if isinstance(found, Selector) else SELECTOR_BYTES),
)  # fmt: skip
"""Selectors are compiled several times while a client subscribes, and again for the next client that has the same, also
if they are refused."""


def compile_selector(text: str) -> Selector:
    """Compiles a selector; :class:`BadSelector` says what is wrong and where."""
    size = len(text.removeprefix(TYPED))
    if size > MAX_SELECTOR_CHARS:
        raise BadSelector(f"{size} characters, {MAX_SELECTOR_CHARS} are allowed", MAX_SELECTOR_CHARS + 1)
    found = _compiled[text]
    if isinstance(found, BadSelector):
        raise BadSelector(found.text, found.position)
    return found


def bytes_of(text: str | None) -> int:
    """Returns the memory that a selector takes up; 0 for none, and for one that does not parse and is refused."""
    if not text:
        return 0
    try:
        return compile_selector(text).bytes
    except BadSelector:
        return 0


def compile_work(text: str | None) -> int:
    """Returns the work of compiling a selector, in the units of a turn (server/connections/turn_budget.py). It is known
    before the text is looked at, so that refused selectors are charged, too."""
    return min(len(text), MAX_SELECTOR_CHARS) // CHARS_A_UNIT if text else 0


def cost_of(text: str | None) -> int:
    """Returns the work of holding a record against a selector, or against none; 1 for a few terms."""
    return compile_selector(text).cost if text else 1
