"""Finds the form in which a subscriber gets records (forms/shape.py)."""

from __future__ import annotations

import msgspec

from headway.core.base import Reason, Refused
from headway.core.consumer import Session, SubscribeRequest, SubscriptionOptions
from headway.core.forms import SHAPE_BYTES, Shape
from headway.core.log import SELECTOR_BYTES
from headway.core.message import KeyExtractor, Record
from headway.core.query import Selection
from headway.core.routing import Registry

_encode = msgspec.json.Encoder().encode


def shape_of(
    registry: Registry, session: Session, request: SubscribeRequest, group: str | None, filter: str
) -> Shape | None:
    """Returns the shape of a subscription; None: it gets records as they were published.

    Raises :class:`Refused`."""
    options = request.options
    if options.select is None or options.live:
        return None
    if group is not None or session.expiry_s > 0:
        text = "option select: not for shared subscriptions, nor for sessions that outlive their connection"
        raise Refused(Reason.PROTOCOL_ERROR, text)
    states = (
        state for state in registry.router.states_for(filter)
        if state.declared and options.key in (None, state.key.text)
    )  # fmt: skip
    state = next(states, None)
    return _projection(Selection(options.select), None if state is None else state.key)


def _projection(selection: Selection, key_of: KeyExtractor | None) -> Shape:
    def project(record: Record) -> bytes:
        return _encode(selection.row(record, key_of))

    return Shape(project, key_of)


def shape_bytes(options: SubscriptionOptions) -> int:
    """Returns the memory that the shape of a subscription with these options takes up."""
    if options.select is None or options.live:
        return 0
    return SHAPE_BYTES + len(options.select) * SELECTOR_BYTES
