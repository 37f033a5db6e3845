"""The semantics of selectors: values, comparisons, arithmetic, LIKE, and three-valued logic.

A :class:`RecordView` is one record under one selector. An *evaluator* is a closure that takes a view and returns a
value; the evaluator of a condition returns True, False or None (unknown). No evaluator raises for any record. The rules
stand in ``selector``, which builds evaluators out of text.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headway.core.message import KeyExtractor, Properties, Record, Run, Said
from headway.core.selector.header_fields import priority_in
from headway.core.selector.like import MAX_LIKE_WORK, LikePattern, Truth

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
