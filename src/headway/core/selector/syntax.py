"""The words of selectors: splits text into tokens, or raises an error that says how to correct the text.

Each token is found by one regular expression, whose alternatives never give back what they took (the quantifiers are
possessive). So splitting takes linear time, whatever the text is.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from headway.core.base import HeadwayError, Reason
from headway.core.message import (
    GROUP,
    GROUP_SEQUENCE,
    NOT_JSON,
    TOPICS,
    BadKey,
    KeyExtractor,
    Properties,
    Record,
    Run,
    Said,
    compile_key,
    field_reader,
    resolve,
    routing_key_of,
)

# -- syntax ------------------------------------------------------------------------------------------------------------


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


# -- fields ------------------------------------------------------------------------------------------------------------
#
# Fields of records, by name: a JSON pointer into the payload, ``property:NAME``, ``topic``, ``key`` or ``offset``.
#
# Orders, projections and aggregates read them. All pointers of a list are read from one decoding of the payload, which
# builds only the outermost fields that are asked for (message/keys.py).


FIELDS = "a JSON pointer such as /delay, property:NAME, topic, key, offset"
"""The names of fields, as errors say them."""

Getter = Callable[[Record, KeyExtractor | None, Any], object]
"""Finds a value in a record, whose decoded payload is the last argument: None if it is no JSON object."""


class BadField(HeadwayError):
    """A name that is no field's."""

    reason = Reason.PROTOCOL_ERROR


class Fields:
    """Reads some fields of records."""

    __slots__ = ("_getters", "_read")

    def __init__(self, names: Sequence[str]) -> None:
        """Raises :class:`BadField`."""
        outer: dict[str, str] = {}
        self._getters = [_pointed(name, outer) if name.startswith("/") else _named(name) for name in names]
        self._read = field_reader(list(outer)) if outer else _read_nothing

    def values(self, record: Record, key_of: KeyExtractor | None) -> list[object]:
        """Returns the value of each field; None where the record has none."""
        try:
            decoded = self._read(record.payload)
        except NOT_JSON:
            decoded = None
        return [get(record, key_of, decoded) for get in self._getters]


def _read_nothing(payload: bytes) -> None:
    """Reads a payload of which no field is asked for."""


def _pointed(name: str, outer: dict[str, str]) -> Getter:
    """``outer`` has the reader's attribute for each outermost field; this one adds its own."""
    try:
        compile_key(name)  # the same limits
    except BadKey as error:
        raise BadField(str(error)) from None
    first, *rest = [token.replace("~1", "/").replace("~0", "~") for token in name[1:].split("/")]
    attribute = outer.setdefault(first, f"f{len(outer)}")

    def value(_: Record, __: KeyExtractor | None, decoded: Any) -> object:
        found = getattr(decoded, attribute, None)
        return resolve(found, rest) if rest else found

    return value


def _named(name: str) -> Getter:
    if name == "offset":
        return lambda record, _, __: record.sequence
    if name == "topic":
        return lambda record, _, __: record.topic
    if name == "key":
        return lambda record, key_of, _: key_of.of(record) if key_of else None
    if name.startswith("property:") and name != "property:":
        wanted = name.removeprefix("property:")
        return lambda record, _, __: record.properties.user_value(wanted)
    raise BadField(f"{name[:60]!a} is none of: {FIELDS}")


# -- header fields -----------------------------------------------------------------------------------------------------
#
# JMS's header fields in selectors, of records that any protocol brought.
#
# A field has the value that a consumer of JMS sees in the message, so a selector wants what its application would.
# Names that begin with JMS are JMS's own (3.5.1): one that is no field, or whose value no selector can know, is a
# mistake and refused, for it would match nothing for ever.


DEFAULT_PRIORITY = 4
OWN_ID = "ID:headway"
"""The beginning of the ids of messages that came without one, as consumers of JMS see them."""

Message = Record | Run


def priority_in(properties: Properties) -> int:
    """Returns the priority from 0 to 9, from the user property "priority"; 4 if that is missing or invalid."""
    value = properties.user_value("priority") if properties.user else None
    return ord(value) - 48 if value and len(value) == 1 and "0" <= value <= "9" else DEFAULT_PRIORITY


class HeaderField(NamedTuple):
    kind: str
    """Text or number."""
    read: Callable[[Said, Message], object]
    differs: bool = False
    """Whether records of one run may have different values (``Run.own``)."""


def _destination(_: Said, message: Message) -> str:
    if message.exchange == TOPICS:
        return f"topic://{routing_key_of(message.topic)}"
    return f"{'topic' if message.exchange else 'queue'}://{routing_key_of(message.topic)}"


def _reply_to(said: Said, _: Message) -> str | None:
    if said.reply_to is None:
        return None
    name, is_topic = said.reply_to
    return f"topic://{routing_key_of(name)}" if is_topic else f"queue://{name}"


def _priority(said: Said, message: Message) -> int:
    return priority_in(message.properties) if said.priority is None else min(said.priority, 9)


def _expiration(said: Said, _: Message) -> int:
    return said.timestamp_ms + said.expiration_ms if said.timestamp_ms and said.expiration_ms else 0


def _group_sequence(said: Said, _: Message) -> int | None:
    value = said.headers.get(GROUP_SEQUENCE)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        return int(value)
    return value if type(value) is int else None


HEADER_FIELDS = {
    "JMSCorrelationID": HeaderField("text", lambda said, _: said.correlation_id),
    "JMSDeliveryMode": HeaderField(
        "text", lambda said, message: "PERSISTENT" if said.persistent or message.qos else "NON_PERSISTENT"
    ),
    "JMSDestination": HeaderField("text", _destination),
    "JMSExpiration": HeaderField("number", _expiration, differs=True),
    "JMSMessageID": HeaderField("text", lambda said, _: said.message_id or OWN_ID, differs=True),
    "JMSPriority": HeaderField("number", _priority),
    "JMSReplyTo": HeaderField("text", _reply_to),
    "JMSTimestamp": HeaderField("number", lambda said, _: said.timestamp_ms or 0, differs=True),
    "JMSType": HeaderField("text", lambda said, _: said.type),
    "JMSXAppID": HeaderField("text", lambda said, _: said.app_id),
    "JMSXGroupID": HeaderField("text", lambda said, _: said.headers.get(GROUP)),
    "JMSXGroupSeq": HeaderField("number", _group_sequence),
    "JMSXUserID": HeaderField("text", lambda said, _: said.user_id),
}
_UNKNOWABLE = {
    "JMSRedelivered": "differs from one delivery to the next",
    "JMSXDeliveryCount": "differs from one delivery to the next",
    "JMSDeliveryTime": "is not kept: messages are delivered at once", "JMSXState": "is not kept",
    "JMSXProducerTXID": "is not kept", "JMSXConsumerTXID": "is not kept", "JMSXRcvTimestamp": "is not kept",
}  # fmt: skip


FORMER = {"x-headway-kept-type": "JMSType", "x-headway-kept-correlation": "JMSCorrelationID"}
"""Names in selectors of durable subscriptions from before 28 November 2026, and the fields that they mean."""


def is_reserved(name: str) -> bool:
    """True if the name is JMS's own; ``JMS_`` begins names of vendors."""
    return name.startswith("JMS") and name[3:4].isupper()


def why_not(name: str) -> str:
    """Returns what is wrong with a reserved name that is no field."""
    if name in _UNKNOWABLE:
        return f"{name} {_UNKNOWABLE[name]}; a selector cannot use it"
    meant = get_close_matches(name[:40], HEADER_FIELDS, 1)
    return f"there is no header field {name[:40]}" + (f"; did you mean {meant[0]}?" if meant else "")


# -- like --------------------------------------------------------------------------------------------------------------
#
# LIKE: patterns of SQL, with a limit on the work that they take.


Truth = bool | None
"""True, False or unknown."""
MAX_PATTERN_CHARS = 256
MAX_LIKE_WORK = 1 << 18
"""The most characters that the search for one piece of a pattern compares, about half a millisecond of work."""
FOUND_AT_ONCE = 16
"""A search for a piece without "_" goes through so many characters in the time of one comparison."""
TOO_LONG = -2
ANY = ""
"""Stands for any character in a piece."""
_NO_PATTERN = re.compile("")


class _Piece:
    """A part of a LIKE pattern between two "%"."""

    __slots__ = ("_core", "_lead", "_literal", "_size")

    def __init__(self, characters: Sequence[str]) -> None:
        given = [at for at, one in enumerate(characters) if one != ANY]
        self._size = len(characters)
        self._lead = given[0] if given else 0
        core = characters[self._lead : given[-1] + 1] if given else []  # from the first to the last given one
        self._literal = None if ANY in core else "".join(core)
        self._core = _NO_PATTERN if self._literal is not None else _expression(core)

    @property
    def compared(self) -> float:
        """The characters that a search compares for each character of the text."""
        return 1 / FOUND_AT_ONCE if self._literal is not None else self._size

    def end(self, text: str, start: int, stop: int) -> int:
        """Returns where its first match between ``start`` and ``stop`` ends; -1 if there is none, ``TOO_LONG`` if to
        find out would take too long."""
        places = stop - start - self._size + 1
        if places <= 0:
            return -1
        first, last = start + self._lead, stop - self._size + self._lead
        if self._literal is not None:
            at = text.find(self._literal, first, last + len(self._literal))
        elif places * self._size > MAX_LIKE_WORK:
            return TOO_LONG
        else:
            found = self._core.search(text, first, stop)
            at = -1 if found is None or found.start() > last else found.start()
        return -1 if at < 0 else at - self._lead + self._size


def _expression(characters: Sequence[str]) -> re.Pattern[str]:
    return re.compile("".join("." if one == ANY else re.escape(one) for one in characters), re.DOTALL)


def _anchored(characters: Sequence[str]) -> Callable[[str, int], object]:
    """Returns a test whether a text has these characters at a place."""
    if ANY in characters:
        return _expression(characters).match
    literal = "".join(characters)
    return lambda text, at: text.startswith(literal, at)


class LikePattern:
    """A LIKE pattern. ValueError says what is wrong with it.

    The piece before the first "%" must match at the start, and the piece after the last "%" at the end. Each piece
    between is taken at its first match, for no later match could be better. So the test does not backtrack. A search
    for a piece takes time in proportion to the text, if it has no "_" between other characters. Where it has one, the
    time is limited: a text for which ``MAX_LIKE_WORK`` does not do is unknown (None).
    """

    __slots__ = ("compared", "searches", "test")

    def __init__(self, pattern: str, escape: str | None) -> None:
        pieces = _pieces(pattern, escape)
        middle = [_Piece(piece) for piece in pieces[1:-1] if piece]
        self.compared = max((piece.compared for piece in middle), default=0.0)
        """The characters that a test compares for each character of the text, at most."""
        self.searches = len(middle)
        """The pieces that a test searches for, at most: a call each, however short the text."""
        self.test = _test(pieces, middle)
        """Tells whether a text is like the pattern."""

    def work(self, text: str) -> int:
        """Returns how many characters a test of this text may compare."""
        return int(len(text) * self.compared)


def _pieces(pattern: str, escape: str | None) -> list[list[str]]:
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ValueError(f"the LIKE pattern has {len(pattern)} characters, {MAX_PATTERN_CHARS} are allowed")
    if escape is not None and len(escape) != 1:
        raise ValueError("ESCAPE takes one character")
    pieces: list[list[str]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, "")
            if escaped not in ("%", "_", escape):
                raise ValueError(f"{escape!a} must stand before %, _ or itself in the LIKE pattern")
            pieces[-1].append(escaped)
        elif character == "%":
            pieces.append([])
        else:
            pieces[-1].append(ANY if character == "_" else character)
    return pieces


def _test(pieces: Sequence[Sequence[str]], middle: Sequence[_Piece]) -> Callable[[str], Truth]:
    head, tail, head_chars, tail_chars = _anchored(pieces[0]), _anchored(pieces[-1]), len(pieces[0]), len(pieces[-1])
    if len(pieces) == 1:
        return lambda text: len(text) == head_chars and bool(head(text, 0))

    def test(text: str) -> Truth:
        stop = len(text) - tail_chars
        if stop < head_chars or not head(text, 0) or not tail(text, stop):
            return False
        at = head_chars
        for piece in middle:
            at = piece.end(text, at, stop)
            if at < 0:
                return None if at == TOO_LONG else False
        return True

    return test


# -- terms -------------------------------------------------------------------------------------------------------------
#
# The semantics of selectors: values, comparisons, arithmetic, LIKE, and three-valued logic.
#
# A :class:`RecordView` is one record under one selector. An *evaluator* is a closure that takes a view and returns a
# value; the evaluator of a condition returns True, False or None (unknown). No evaluator raises for any record. The
# rules stand in ``selector``, which builds evaluators out of text.


MAX_LIKE_WORK_PER_RECORD = 4 * MAX_LIKE_WORK
"""The most that all searches of a selector compare in one record."""
_MAY_BE_NUMBERS = frozenset("0123456789-tfniNI")
"""First characters of texts that stand for numbers and truth values of other protocols."""


class RecordView:
    """One record under one selector."""

    __slots__ = (
        "_key", "_said", "fields", "key_of", "like_work_left", "message", "payload", "properties", "topic", "user",
    )  # fmt: skip

    def __init__(self, message: Record | Run, payload: bytes, key_of: KeyExtractor | None) -> None:
        self.message = message
        self.topic = message.topic
        self.properties = message.properties
        self._said: Said | None = None
        self.user = user_texts(self.properties)
        self.key_of = key_of
        self.show(payload)

    @property
    def said(self) -> Said:
        """The properties of the message, read when they are first asked for."""
        if self._said is None:
            self._said = self.properties.said
        return self._said

    def show_own(self, properties: Properties) -> None:
        """Takes the properties of a record of a run in which they differ."""
        self.properties, self._said = properties, None

    def typed(self, name: str) -> object:
        """Returns a user property with the type that its sender gave it; None: there is none."""
        text = self.user.get(name)
        if text is None or self.properties.native is None or text[:1] not in _MAY_BE_NUMBERS:
            return text
        value = self.properties.headers.get(name)
        return value if isinstance(value, int | float) else text

    def show(self, payload: bytes, fields: Any = None) -> None:
        """Makes this the view of another record of the same topic and properties."""
        self.payload = payload
        self.fields: Any = fields
        """Fields that the selector's reader found in the payload. None: not read yet. False: there are none."""
        self.like_work_left = MAX_LIKE_WORK_PER_RECORD
        self._key: object = _NOT_READ

    def own(self, name: str) -> object:
        """The topic, priority or key of the record; a field or property of the same name hides these."""
        if name == "topic":
            return self.topic
        if name == "priority":
            return priority_in(self.properties)
        if self._key is _NOT_READ:
            self._key = self.key_of.find(self.topic, self.properties, self.payload) if self.key_of else None
        return self._key


def user_texts(properties: Properties) -> Mapping[str, str]:
    """Returns the first value of each user property."""
    return dict(reversed(properties.user)) if properties.user else _NO_TEXTS


_NOT_READ = object()
_NO_TEXTS: Mapping[str, str] = {}
OWN_NAMES = frozenset({"topic", "priority", "key"})

Evaluator = Callable[[RecordView], Any]

class UntypedText(str):
    """Text of a user property, which has no type: a number or a truth value where one is needed."""

    __slots__ = ()


# The number of digits is bounded, so that conversion is cheap and never fails.
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_NUMBERS = (int, float)
_TRUTHS = {"true": True, "false": False}


def number(value: object) -> int | float | None:
    """Returns ``value`` as a number; None if it is no number."""
    if isinstance(value, _NUMBERS):
        return None if isinstance(value, bool) else value
    if type(value) is UntypedText:
        digits = str(value).strip()
        if _NUMBER.fullmatch(digits):
            return int(digits) if digits.lstrip("+-").isdigit() else float(digits)
    return None


def bounded(value: int | float | None) -> int | float | None:
    """Turns integers beyond 64 bits into floating point, so that arithmetic stays cheap; None (NULL) beyond that."""
    if type(value) is int and not -(2**63) <= value < 2**64:
        try:
            return float(value)
        except OverflowError:
            return None
    return value


def truth(value: object) -> Truth:
    """Returns ``value`` as a condition."""
    if type(value) is bool:
        return value
    return _TRUTHS.get(value.lower()) if type(value) is UntypedText else None


TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
SUMS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
}  # fmt: skip
_ORDERLESS = (operator.eq, operator.ne)


def compare(test: Callable[[Any, Any], bool], left: object, right: object) -> Truth:
    """Compares two values. Values of different types give False; NULL gives None (unknown)."""
    if left is None or right is None:
        return None
    if type(left) in _NUMBERS or type(right) in _NUMBERS:
        one, other = number(left), number(right)
        return one is not None and other is not None and test(one, other)
    if type(left) is bool or type(right) is bool:
        yes, also = truth(left), truth(right)
        return yes is not None and also is not None and test in _ORDERLESS and test(yes, also)
    if not isinstance(left, str) or not isinstance(right, str):
        return False
    if type(left) is UntypedText and type(right) is UntypedText and test not in _ORDERLESS:
        # The order of two user properties: as numbers, if both look like numbers.
        one, other = number(left), number(right)
        if one is not None and other is not None:
            return test(one, other)
    return test(left, right)


def comparison(sign: str, left: Evaluator, right: Evaluator, constant: object = None) -> Evaluator:
    """Returns a comparison. ``constant`` is the value of ``right`` if that is constant, which has a fast path."""
    test = TESTS[sign]
    if type(constant) is str:
        alike: tuple[type, ...] = (str, UntypedText)
    elif type(constant) in _NUMBERS:
        alike = _NUMBERS
    else:
        return lambda view: compare(test, left(view), right(view))

    def evaluate(view: RecordView) -> Truth:
        value = left(view)
        return test(value, constant) if type(value) in alike else compare(test, value, constant)

    return evaluate


def arithmetic(sign: str, left: Evaluator, right: Evaluator) -> Evaluator:
    """Returns an operation, whose result is NULL if an operand is no number, and on division by zero or overflow."""
    apply = SUMS[sign]

    def evaluate(view: RecordView) -> int | float | None:
        one, other = bounded(number(left(view))), bounded(number(right(view)))
        if one is None or other is None:
            return None
        try:
            result: int | float = apply(one, other)
            return result
        except ArithmeticError:
            return None

    return evaluate


def negation(of: Evaluator) -> Evaluator:
    def evaluate(view: RecordView) -> Truth:
        value: Truth = of(view)
        return None if value is None else not value

    return evaluate


def chain(evaluators: Sequence[Evaluator], decides: bool) -> Evaluator:
    """Returns OR if ``decides`` is True, so that one true part makes the whole true; else AND. The parts are tried in
    order."""

    def evaluate(view: RecordView) -> Truth:
        result: Truth = not decides
        for part in evaluators:
            value: Truth = part(view)
            if value is decides:
                return decides
            if value is None:
                result = None
        return result

    return evaluate


def between(value: Evaluator, low: Evaluator, high: Evaluator) -> Evaluator:
    return chain([comparison(">=", value, low), comparison("<=", value, high)], False)


def among(value: Evaluator, choices: Sequence[object]) -> Evaluator:
    texts = {choice for choice in choices if isinstance(choice, str)}
    numbers = {choice for choice in choices if not isinstance(choice, str)}

    def evaluate(view: RecordView) -> Truth:
        found = value(view)
        if found is None:
            return None
        if isinstance(found, str) and found in texts:
            return True
        return bool(numbers) and number(found) in numbers

    return evaluate


def like(value: Evaluator, pattern: LikePattern) -> Evaluator:
    test = pattern.test

    def evaluate(view: RecordView) -> Truth:
        found = value(view)
        if found is None:
            return None
        if not isinstance(found, str):
            return False
        view.like_work_left -= pattern.work(found)
        return None if view.like_work_left < 0 else test(found)

    return evaluate
