"""Options of a consumer, from what a client of JMS can say: its selector, and hints in front of it.

JMS has no room for options, and the client sends only those of its own from a destination's ``?consumer.…``. But it
hands on a selector as it is, and SQL has hints: a comment that begins with a plus sign. So

    session.createConsumer(topic, "/*+ conflate=500ms snapshot=true */ delay > 30")

has the options of the house (core/consumer/request/option_table.py) before the condition. A value with spaces is in
single quotes, as SQL's texts are: ``order_by='/price DESC'``. Without a condition one writes TRUE, because the client
wants one.
"""

from __future__ import annotations

import re

import msgspec

from headway.core.consumer import SubscriptionOptions, Use, parse_options
from headway.core.message import topic_of
from headway.core.selector import MAX_SELECTOR_CHARS, BadSelector, compile_selector, typed
from headway.server.openwire.faults import JmsFault
from headway.wire.openwire.replies import SELECTOR_ERROR

_HINTS_BEGIN = re.compile(r"\s*/\*\+")
_HINT = re.compile(r"\s*([^\s='*]+)(?:=('(?:[^']|'')*'|[^\s']\S*?)?)?(?=\s|\*/)")
_HINTS_END = re.compile(r"\s*\*/")
_TOKEN = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|/\*.*?(?:\*/|\Z)", re.DOTALL)
"""A comment that does not end takes all that is left, so that its end is looked for once."""


def options_of(
    hints: list[tuple[str, str]], condition: str | None, use: Use = Use.SUBSCRIPTION
) -> SubscriptionOptions:
    """Returns the options of a consumer with these hints and this condition (``split``). Raises :class:`Refused`."""
    options = parse_options(hints, use)
    return options if condition is None else msgspec.structs.replace(options, selector=typed(condition))


def split(selector: str) -> tuple[list[tuple[str, str]], str | None]:
    """Returns the hints of a selector, name and value each, and its condition; None: there is
    none. Raises :class:`JmsFault`."""
    if len(selector) > MAX_SELECTOR_CHARS:
        text = f"the selector has {len(selector)} characters, its hints included; {MAX_SELECTOR_CHARS} are allowed"
        raise JmsFault(text, SELECTOR_ERROR)
    hints: list[tuple[str, str]] = []
    at = 0
    while (begin := _HINTS_BEGIN.match(selector, at)) is not None:
        at = begin.end()
        while (end := _HINTS_END.match(selector, at)) is None:
            hint = _HINT.match(selector, at)
            if hint is None:
                text = f"the hints in {selector[:200]!r}: expected NAME=VALUE or */ at {selector[at : at + 40]!r}"
                raise JmsFault(text, SELECTOR_ERROR)
            name, value = hint.groups()
            hints.append((name, _unquoted(value) or "true"))
            at = hint.end()
        at = end.end()
    selector = selector[at:]
    condition = _TOKEN.sub(_without_comment, selector).strip()
    if not condition or condition.upper() == "TRUE":
        return hints, None
    try:
        compile_selector(typed(condition))
    except BadSelector as error:
        raise JmsFault(f"the selector {selector[:200]!r}: {error}", SELECTOR_ERROR) from None
    return hints, condition


def about_destination(name: str) -> str:
    """Returns a condition on the broker's advisories: that they are about consumers of this queue or topic."""
    quoted = name.replace("'", "''")
    return f"filter IN ('{quoted}', '{topic_of(quoted)}', '$queue/{quoted}')"


def _unquoted(value: str | None) -> str | None:
    return value[1:-1].replace("''", "'") if value and value.startswith("'") else value


def _without_comment(token: re.Match[str]) -> str:
    text = token[0]
    return " " if text.startswith("/*") and text.endswith("*/") else text


