"""A connection, as the core knows it: the outlet of its client, and the rights that it has."""

from headway.core.consumer.connection.held_rights import NO_SOURCE, HeldRights, RightsSource
from headway.core.consumer.connection.outlet import NO_OUTLET, Outlet, Pace, PeerState

__all__ = [
    "HeldRights", "NO_OUTLET", "NO_SOURCE", "Outlet", "Pace", "PeerState", "RightsSource",
]
