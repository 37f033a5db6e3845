"""Finds the state by which a subscriber is told what it loses sight of (log/focus.py)."""

from __future__ import annotations

from headway.core.base import Reason, Refused
from headway.core.clients.requests.acceptance import Accepts, coverage_of
from headway.core.consumer import Session, SubscribeRequest
from headway.core.log import Focus
from headway.core.query import keyed_state
from headway.core.routing import Registry


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
