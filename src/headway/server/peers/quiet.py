"""Requests of the broker to a peer that has no packet for them: an advisory says it then."""

from __future__ import annotations

from math import inf

from headway.core.base import Reason
from headway.core.consumer import CloseChannel, Subscription


class QuietPeer:
    __slots__ = ()
    closes_consumers = False

    def heartbeat(self, now: float) -> float:
        return inf

    def says_goodbye(self) -> bool:
        return False

    @property
    def has_more(self) -> bool:
        return False

    def paused(self, why: str) -> None: ...
    def close_channel(self, effect: CloseChannel) -> None: ...
    def close_consumer(self, subscription: Subscription, text: str) -> None: ...
    def cancelled(self, subscription: Subscription, reason: Reason) -> None: ...
    def revoked(self, subscription: Subscription, reason: Reason, text: str) -> None: ...
