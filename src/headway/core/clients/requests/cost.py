"""The room that a subscription needs: the memory that counts to its client, and one more subscription."""

from __future__ import annotations

from headway.core.base import Reason, Refused
from headway.core.clients.requests.acceptance import parse_filter
from headway.core.clients.requests.shaping import shape_bytes
from headway.core.consumer import Session, SubscribeRequest
from headway.core.live import live_bytes
from headway.core.log import (
    CONSUMER_BYTES,
    FOCUS_BYTES,
    LEVEL_BYTES,
    QUEUE_BYTES,
    SUBSCRIPTION_BYTES,
    WILD_LEVEL_BYTES,
)
from headway.core.message import has_wildcard, shape_of
from headway.core.permission import QUEUES
from headway.core.routing import Registry
from headway.core.selector import bytes_of

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
