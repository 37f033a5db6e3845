"""The filter of a request to subscribe, and the test of the records that it accepts."""

from __future__ import annotations

from collections.abc import Callable

from headway.core.base import Reason, Refused
from headway.core.consumer import Session, SubscribeRequest
from headway.core.message import (
    BadKey,
    BadTopic,
    Record,
    compile_key,
    parse_shared_filter,
    quick_matcher,
    validate_filter,
)
from headway.core.selector import BadSelector, compile_selector

Accepts = Callable[[Record], bool]


def parse_filter(text: str) -> tuple[str | None, str]:
    """Returns the group of a shared subscription, None if it is none, and the filter. Raises :class:`Refused`."""
    try:
        share = parse_shared_filter(text)
        return (None, validate_filter(text)) if share is None else share
    except BadTopic as error:
        raise Refused(Reason.PROTOCOL_ERROR, str(error)) from error


def coverage_of(session: Session, request: SubscribeRequest, filter: str) -> Accepts:
    """Returns the test whether a record is for a subscription, if its selector accepts it."""
    on_topic, exclude = quick_matcher(filter), session.number if request.no_local else 0

    def covers(record: Record) -> bool:
        return bool(on_topic(record.topic)) and (not exclude or record.publisher != exclude)

    return covers


def acceptance_of(session: Session, request: SubscribeRequest, filter: str) -> Accepts:
    """Returns the test whether a record belongs to a subscription. Raises :class:`Refused` on a bad selector."""
    options, covers = request.options, coverage_of(session, request, filter)
    try:
        if options.key:
            compile_key(options.key)
        if not options.selector:
            return covers
        selects = compile_selector(options.selector).matches
    except (BadSelector, BadKey) as error:
        raise Refused(Reason.PROTOCOL_ERROR, str(error)) from error
    return lambda record: covers(record) and selects(record)
