"""The filter of a request to subscribe, and the test of the records that it accepts."""

from __future__ import annotations

from collections.abc import Callable

from headway.core.base import Reason, Refused
from headway.core.consumer import SubscribeRequest
from headway.core.message import (
    BadKey,
    BadTopic,
    Record,
    compile_key,
    matcher,
    parse_shared_filter,
    validate_filter,
)
from headway.core.selector import BadSelector, compile_selector


def parse_filter(request: SubscribeRequest) -> tuple[str | None, str]:
    """Returns the group of a shared subscription, None if it is none, and the filter. Raises :class:`Refused`."""
    try:
        share = parse_shared_filter(request.filter)
        if share is None:
            return None, validate_filter(request.filter)
    except BadTopic as error:
        raise Refused(Reason.PROTOCOL_ERROR, str(error)) from error
    if request.shared_dialect is None:
        raise Refused(Reason.PROTOCOL_ERROR, "shared subscriptions are not available here")
    return share


def acceptance_of(request: SubscribeRequest, filter: str, exclude: int) -> Callable[[Record], bool]:
    """Returns the test whether a record belongs to such a subscription. Raises :class:`Refused` on a bad selector."""
    try:
        selects = compile_selector(request.options.selector).matches if request.options.selector else None
        if request.options.key:
            compile_key(request.options.key)
    except (BadSelector, BadKey) as error:
        raise Refused(Reason.PROTOCOL_ERROR, str(error)) from error
    on_topic = matcher(filter)

    def accepts(record: Record) -> bool:
        if not on_topic(record.topic) or (exclude and record.publisher == exclude):
            return False
        return selects is None or selects(record)

    return accepts
