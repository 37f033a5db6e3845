"""The limits of a user, as one ``[[limit]]`` of the configuration has them."""

from __future__ import annotations

from math import inf

import msgspec


class UserLimits(msgspec.Struct, frozen=True):
    """Limits of a user, of each user of a group, or of each user. inf: there is no such limit."""

    name: str
    """How errors call it: ``limit[2]``."""
    user: str | None = None
    group: str | None = None
    """Neither: each user."""
    connections: float = inf
    subscriptions: float = inf
    publish_rate: float = inf
    """Records a second."""
    publish_bytes: float = inf
    """Bytes a second."""
    pool_share: float = inf
    in_flight_bytes: float = inf
    """Bytes that were sent and are not acknowledged."""

    @property
    def of_rates(self) -> bool:
        """Whether publishing has a limit."""
        return min(self.publish_rate, self.publish_bytes) < inf
