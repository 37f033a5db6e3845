"""Trace context: a record says which trace it belongs to, by the property ``traceparent`` (W3C Trace Context).

The broker reads it, and never writes it: consumers get it as it came.
"""

from __future__ import annotations

from typing import NamedTuple

from headway.core.message.record import Run

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
STATE_CHARS_MAX = 512
"""A longer ``tracestate`` is not repeated in spans."""
_LENGTH = 55
_FLAGS_AT = 54
"""The digit with the flag *sampled*, its lowest bit."""
_SAMPLED = frozenset("13579bdf")
_HEX = frozenset("0123456789abcdef")


class TraceContext(NamedTuple):
    trace_id: int
    span_id: int
    """The span of the publisher."""
    flags: int
    state: str = ""
    """The ``tracestate`` of the record."""


def sampled_context(run: Run) -> TraceContext | None:
    """Returns the trace context of a run; None if its trace is not sampled, or it has none that can be understood."""
    found = _value(run, TRACEPARENT)
    if found is None or found[_FLAGS_AT : _FLAGS_AT + 1] not in _SAMPLED:
        return None  # the cheapest look comes first: most are not sampled
    context = parse_traceparent(found)
    if context is None:
        return None
    state = _value(run, TRACESTATE)
    return context._replace(state=state) if state and len(state) <= STATE_CHARS_MAX else context


def parse_traceparent(text: str) -> TraceContext | None:
    """Returns None if the text is no trace context. One of a later version is read as far as this version goes."""
    later = text[:2] != "00"
    if len(text) < _LENGTH or (len(text) > _LENGTH and not (later and text[_LENGTH] == "-")):
        return None
    parts = text[:_LENGTH].split("-")
    if [len(part) for part in parts] != [2, 32, 16, 2] or not all(map(_HEX.issuperset, parts)) or parts[0] == "ff":
        return None
    trace_id, span_id, flags = (int(part, 16) for part in parts[1:])
    return TraceContext(trace_id, span_id, flags) if trace_id and span_id else None


def _value(run: Run, name: str) -> str | None:
    """Returns the text of a header, or of a user property, of this name."""
    if run.headers:
        value = run.headers.get(name)
        if isinstance(value, bytes):
            return value.decode("ascii", "replace")
        if isinstance(value, str):
            return value
    return run.properties.user_value(name) if run.properties.user else None
