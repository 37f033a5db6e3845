"""Finds the form in which a subscriber gets records (forms/shape.py)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headway.core.base import Reason, Refused
from headway.core.clients.requests.acceptance import Accepts
from headway.core.consumer import Session, SubscribeRequest, SubscriptionOptions
from headway.core.forms import SHAPE_BYTES, Deltas, Shape
from headway.core.log import SELECT_BYTES
from headway.core.message import KeyExtractor, Record
from headway.core.query import Selection, keyed_state
from headway.core.routing import Registry

_encode = msgspec.json.Encoder().encode


def shape_of(
    registry: Registry, session: Session, request: SubscribeRequest, group: str | None, filter: str,
    accepts: Accepts,
) -> Shape | None:  # fmt: skip
    """Returns the shape of a subscription; None: it gets records as they were published.

    Raises :class:`Refused`."""
    options = request.options
    if options.delta and options.live:
        raise _refused("option delta: not for live pages and aggregates, which tell whole records")
    if not _is_shaped(options):
        return None
    state = keyed_state(registry, session, options, group, filter, "delta" if options.delta else "select")
    key_of = None if state is None else state.key
    project = None if options.select is None else _projection(Selection(options.select), key_of)
    if not options.delta:
        return Shape(project, key_of)
    if state is None:
        raise _refused(f"option delta: no keyed [[topic]] covers {filter[:100]!a}")
    if options.start_time(0.0) is not None:
        raise _refused("option delta: from takes an offset, and no time")
    return Shape(project, key_of, Deltas(state, accepts, registry.sequence))


def _is_shaped(options: SubscriptionOptions) -> bool:
    return (options.select is not None or options.delta) and not options.live


def _refused(text: str) -> Refused:
    return Refused(Reason.PROTOCOL_ERROR, text)


def _projection(selection: Selection, key_of: KeyExtractor | None) -> Callable[[Record], bytes]:
    def project(record: Record) -> bytes:
        return _encode(selection.row(record, key_of))

    return project


def shape_bytes(options: SubscriptionOptions) -> int:
    """Returns the memory that the shape of a subscription with these options takes up."""
    if not _is_shaped(options):
        return 0
    return SHAPE_BYTES + len(options.select or "") * SELECT_BYTES
