"""The limits of a user, as one ``[[limit]]`` of the configuration has them."""

from __future__ import annotations

import msgspec


class UserLimits(msgspec.Struct, frozen=True):
    """Limits of a user, of each user of a group, or of each user. None: there is no such limit."""

    name: str
    """How errors call it: ``limit[2]``."""
    user: str | None = None
    group: str | None = None
    """Neither: each user."""
    connections: int | None = None
    subscriptions: int | None = None
    publish_rate: int | None = None
    """Records a second."""
    publish_bytes: int | None = None
    """Bytes a second."""
    pool_share: float | None = None
    in_flight_bytes: int | None = None
    """Bytes that were sent and are not acknowledged."""

    @property
    def of_rates(self) -> bool:
        """Whether publishing has a limit."""
        return self.publish_rate is not None or self.publish_bytes is not None
