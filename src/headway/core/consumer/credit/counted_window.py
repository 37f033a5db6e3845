"""A counted window is one whose client says how many records it has done with, and not which."""

from __future__ import annotations

from headway.core.consumer.credit.window import Window


class CountedWindow(Window):
    """The window of a consumer of topics that says how many records it has done with, and not which. What it was sent
    (``Reader.delivered``) minus these is in flight, so nothing is done per record."""

    __slots__ = ("settled",)
    counts = True

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.settled = 0

    def sent(self, records: int) -> None:
        self.used = records - self.settled

    def settle_some(self, records: int) -> int:
        done = min(records, self.used)
        self.settled += done
        self.used -= done
        return done
