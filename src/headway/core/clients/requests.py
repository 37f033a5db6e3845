"""The parts of a request to subscribe: its filter, the records it accepts, its focus, its shape, and its memory."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headway.core.base import Reason, Refused
from headway.core.consumer import Session, SubscribeRequest, SubscriptionOptions
from headway.core.forms import SHAPE_BYTES, Deltas, Shape
from headway.core.live import live_bytes
from headway.core.log import (
    CONSUMER_BYTES,
    FOCUS_BYTES,
    LEVEL_BYTES,
    QUEUE_BYTES,
    SELECT_BYTES,
    SUBSCRIPTION_BYTES,
    WILD_LEVEL_BYTES,
    Focus,
)
from headway.core.message import (
    BadKey,
    BadTopic,
    KeyExtractor,
    Record,
    compile_key,
    has_wildcard,
    parse_shared_filter,
    quick_matcher,
    shape_of,
    validate_filter,
)
from headway.core.permission import QUEUES
from headway.core.query import Selection, keyed_state
from headway.core.routing import Registry
from headway.core.selector import BadSelector, bytes_of, compile_selector

# -- acceptance --------------------------------------------------------------------------------------------------------
#
# The filter of a request to subscribe, and the test of the records that it accepts.


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


# -- focusing ----------------------------------------------------------------------------------------------------------
#
# Finds the state by which a subscriber is told what it loses sight of (log/states.py).


def focus_of(
    registry: Registry, session: Session, request: SubscribeRequest, group: str | None, filter: str,
    accepts: Accepts,
) -> Focus | None:  # fmt: skip
    """Returns the focus of a subscription; None: it asks for none, or without a selector loses sight of nothing.

    Raises :class:`Refused`."""
    options = request.options
    if not options.out_of_focus or options.selector is None or options.query:
        return None
    state = keyed_state(registry, session, options, group, filter, "out_of_focus")
    if state is None:
        raise Refused(Reason.PROTOCOL_ERROR, f"option out_of_focus: no keyed [[topic]] covers {filter[:100]!a}")
    return Focus(state, accepts, coverage_of(session, request, filter), registry.sequence)


# -- shaping -----------------------------------------------------------------------------------------------------------
#
# Finds the form in which a subscriber gets records (core/forms.py).


_encode = msgspec.json.Encoder().encode


def projection_of(
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


# -- cost --------------------------------------------------------------------------------------------------------------
#
# The room that a subscription needs: the memory that counts to its client, and one more subscription.


SHAPES_MAX = 512
"""A topic is matched by one filter of each shape at most. So this is how many filters of one client each topic is held
against, and how often the client can get one record."""
SELECTORS_MAX = 256
"""Subscriptions with selectors that a client may have to one filter: each record of its topics is held against each."""
PICKER_BYTES = 20_000
"""The memory of a selector of a queue: the places of records that it found."""


def check_room(registry: Registry, session: Session, request: SubscribeRequest, what: str = "subscriptions") -> None:
    """Raises :class:`Refused` if there is no room for one more subscription of a client."""
    limit = registry.limits_of(session.listener).subscriptions_per_session_max
    if len(session.subscriptions) >= limit:
        raise Refused(Reason.TOO_MANY_SUBSCRIPTIONS, f"a session may have {limit} {what}")
    shapes, wild = session.shapes, has_wildcard(request.filter)
    if wild and len(shapes) >= SHAPES_MAX and shape_of(request.filter) not in shapes:
        text = f"a session may have filters with their wildcards in {SHAPES_MAX} different places"
        raise Refused(Reason.TOO_MANY_SUBSCRIPTIONS, text)
    if request.options.selector is not None and session.selecting.get(request.filter, 0) >= SELECTORS_MAX:
        text = f"a session may have {SELECTORS_MAX} subscriptions with selectors to one filter"
        raise Refused(Reason.TOO_MANY_SUBSCRIPTIONS, text)
    session.tab.check(cost(request))
    session.allowance.check_subscription()


def cost(request: SubscribeRequest) -> int:
    """Returns the memory that such a subscription takes up."""
    filter, options = request.filter, request.options
    selector = bytes_of(options.selector)
    if request.envelope is not None and filter.startswith(QUEUES):
        picker = PICKER_BYTES + selector if selector else 0
        return picker + CONSUMER_BYTES + 4 * len(filter) + 2 * len(request.label)
    level = WILD_LEVEL_BYTES if has_wildcard(filter) else LEVEL_BYTES
    focus = live_bytes(options) if options.live else FOCUS_BYTES if options.out_of_focus else 0
    group = QUEUE_BYTES if parse_filter(filter)[0] is not None else 0  # it stays until its last member has left
    focus += shape_bytes(options) + group
    return focus + SUBSCRIPTION_BYTES + 4 * len(filter) + level * filter.count("/") + selector + 2 * len(request.label)
