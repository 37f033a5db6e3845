"""Ended publishers: sessions that have ended and whose records consumers may still lose. Their counters go on.

They are bounded by number and by bytes, because clients choose the length of their names. The sessions that ended first
are dropped first; records of theirs that consumers lose later are counted by reason only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection

from headway.core.consumer import Session
from headway.core.log import SESSION_BYTES

ENDED_PUBLISHERS_MAX = 10_000
ENDED_PUBLISHERS_BYTES_MAX = 32 * 1024 * 1024


class EndedPublishers:
    def __init__(self) -> None:
        self.bytes = 0
        self._by_number: OrderedDict[int, Session] = OrderedDict()

    def add(self, session: Session) -> None:
        self._by_number[session.number] = session
        self.bytes += _cost(session)
        while len(self._by_number) > ENDED_PUBLISHERS_MAX or self.bytes > ENDED_PUBLISHERS_BYTES_MAX:
            _, oldest = self._by_number.popitem(last=False)
            self.bytes -= _cost(oldest)

    def get(self, number: int) -> Session | None:
        return self._by_number.get(number)

    def values(self) -> Collection[Session]:
        return self._by_number.values()


def _cost(session: Session) -> int:
    return SESSION_BYTES + 2 * len(session.client) + 2 * len(session.username or "")
