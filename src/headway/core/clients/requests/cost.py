"""The memory that a subscription takes up, and counts to its client."""

from __future__ import annotations

from headway.core.clients.requests.shaping import shape_bytes
from headway.core.consumer import SubscribeRequest
from headway.core.live import live_bytes
from headway.core.log import (
    CONSUMER_BYTES,
    FOCUS_BYTES,
    LEVEL_BYTES,
    SELECTOR_BYTES,
    SUBSCRIPTION_BYTES,
    WILD_LEVEL_BYTES,
)
from headway.core.message import has_wildcard
from headway.core.permission import QUEUES

PICKER_BYTES = 20_000
"""The memory of a selector of a queue: the places of records that it found."""


def cost(request: SubscribeRequest) -> int:
    """Returns the memory that such a subscription takes up."""
    filter, options = request.filter, request.options
    selector = len(options.selector or "") * SELECTOR_BYTES
    if request.envelope is not None and filter.startswith(QUEUES):
        picker = PICKER_BYTES + selector if selector else 0
        return picker + CONSUMER_BYTES + 4 * len(filter) + 2 * len(request.label)
    level = WILD_LEVEL_BYTES if has_wildcard(filter) else LEVEL_BYTES
    focus = live_bytes(options) if options.live else FOCUS_BYTES if options.out_of_focus else 0
    focus += shape_bytes(options)
    return focus + SUBSCRIPTION_BYTES + 4 * len(filter) + level * filter.count("/") + selector + 2 * len(request.label)
