"""The state that an option of a subscriber is about."""

from __future__ import annotations

from headway.core.base import Reason, Refused
from headway.core.consumer import Session, SubscriptionOptions
from headway.core.log import State
from headway.core.routing import Registry


def keyed_state(
    registry: Registry, session: Session, options: SubscriptionOptions, group: str | None, filter: str, option: str
) -> State | None:
    """Returns the first state of the configuration that has all records of a filter, by the key that the subscriber
    says, if it says one; None: no keyed topic covers the filter.

    Raises :class:`Refused` if this ``option`` is not for such a subscription."""
    if group is not None or session.expiry_s > 0:
        text = f"option {option}: not for shared subscriptions, nor for sessions that outlive their connection"
        raise Refused(Reason.PROTOCOL_ERROR, text)
    return registry.router.keyed_state(filter, options.key)
