"""The spans of one trace: one of the broker's, and below it one for each consumer that was owed the record.

Names and attributes follow OpenTelemetry's semantic conventions for messaging; what these have no word for is named
``headway.…``. The broker's span is a child of the publisher's, whose context the record carries. A consumer's own span
is that, too, because the record goes on with the context it came with.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState
from opentelemetry.util.types import AttributeValue

from headway import __version__
from headway.core.message import TOPICS, routing_key_of
from headway.core.policy import Verdict
from headway.core.receipts import Fate, Outcome, Trace
from headway.server.traces.ended import Ended

SYSTEM = "headway"
SCOPE = InstrumentationScope("headway", __version__)
_FAILED = (Outcome.DISCARDED, Outcome.EXPIRED, Outcome.LOST)
"""Outcomes that make a span one with an error. A conflated record was replaced by a newer one, as was asked for."""
_NS = 1_000_000_000

Attributes = dict[str, AttributeValue]


def spans_of(ended: Ended, resource: Resource) -> Iterator[ReadableSpan]:
    trace, offset_s = ended.trace, ended.wall_offset_s
    context = trace.context
    state = TraceState.from_header([context.state]) if context.state else TraceState()
    publisher = SpanContext(context.trace_id, context.span_id, True, TraceFlags(context.flags), state)
    own = _below(publisher)
    destination, about = _destination(trace)
    began = _ns(trace.opened_s + offset_s)
    yield ReadableSpan(
        f"receive {destination}", own, publisher, resource, about | _of_broker(trace), kind=SpanKind.SERVER,
        start_time=began, end_time=_ns(trace.ended_s + offset_s), instrumentation_scope=SCOPE,
    )  # fmt: skip
    for fate, verdict in zip(trace.fates, ended.verdicts, strict=True):
        yield ReadableSpan(
            f"deliver {destination}", _below(own), own, resource, about | _of_consumer(fate, trace, verdict),
            events=() if verdict is None else (_event(verdict),), kind=SpanKind.PRODUCER, status=_status(fate),
            start_time=began, end_time=_ns(fate.at_s + offset_s), instrumentation_scope=SCOPE,
        )  # fmt: skip


def _below(parent: SpanContext) -> SpanContext:
    return SpanContext(
        parent.trace_id, secrets.randbits(64) or 1, False, TraceFlags(TraceFlags.SAMPLED), parent.trace_state
    )


def _ns(wall_s: float) -> int:
    return int(wall_s * _NS)


def _destination(trace: Trace) -> tuple[str, Attributes]:
    """Returns the name of where the record went, and the attributes that all spans have."""
    name, key = trace.topic, ""
    if trace.exchange != TOPICS:
        key = routing_key_of(trace.topic)
        name = trace.exchange or key  # the default exchange's keys are names of queues
    about: Attributes = {"messaging.system": SYSTEM, "messaging.destination.name": name}
    if trace.exchange and key:
        about["headway.routing_key"] = key
    return name, about


def _of_broker(trace: Trace) -> Attributes:
    about: Attributes = {
        "messaging.operation.name": "receive", "messaging.operation.type": "receive",
        "messaging.client.id": trace.client, "messaging.message.body.size": trace.body_bytes,
        "headway.sequence": trace.sequence, "headway.qos": trace.qos, "headway.state": trace.state,
    }  # fmt: skip
    if trace.records > 1:
        about["messaging.batch.message_count"] = trace.records
    about |= {f"headway.consumers.{name}": count for name, count in trace.figures.items()}
    if trace.unnamed:
        about["headway.consumers.without_span"] = trace.unnamed
    return about


def _of_consumer(fate: Fate, trace: Trace, verdict: Verdict | None) -> Attributes:
    about: Attributes = {
        "messaging.operation.name": "deliver", "messaging.operation.type": "send",
        "headway.outcome": str(fate.outcome), "headway.age_s": round(fate.at_s - trace.opened_s, 6),
    }  # fmt: skip
    if fate.client:
        about |= {"messaging.client.id": fate.client, "messaging.destination.subscription.name": fate.name}
    else:
        about["headway.queue"] = fate.name
    if fate.reason is not None:
        about["headway.reason"] = str(fate.reason)
    if verdict is not None:
        about |= {"headway.policy": verdict.policy, "headway.rule": verdict.rule, "headway.action": verdict.action.word}
    return about


def _status(fate: Fate) -> Status:
    if fate.outcome not in _FAILED:
        return Status(StatusCode.UNSET)
    return Status(StatusCode.ERROR, f"{fate.outcome}: {fate.reason}")


def _event(verdict: Verdict) -> Event:
    about: Attributes = {
        "headway.verdict": verdict.number, "headway.policy": verdict.policy, "headway.rule": verdict.rule,
        "headway.action": verdict.action.word, "headway.reason": str(verdict.reason), "headway.text": verdict.text,
    }  # fmt: skip
    if verdict.cause is not None:
        about["headway.cause"] = str(verdict.cause)
    return Event("headway.verdict", about, _ns(verdict.wall_s))
