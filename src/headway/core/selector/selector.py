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
- Names of JMS's header fields (JMSType, JMSPriority …) stand for these, in records of all protocols (header_fields.py).
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

from collections.abc import Callable
from typing import Any

from headway.core.message import KeyExtractor, Record, Run
from headway.core.selector.header_fields import priority_in
from headway.core.selector.terms import Evaluator, RecordView

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
