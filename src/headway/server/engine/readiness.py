"""Readiness: whether the broker can do its work for a further client, and each reason why not."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from headway.core.broker import Broker
from headway.server.journal import JournalWriter


class Stage(StrEnum):
    STARTING = "starting"
    SERVING = "serving"
    STOPPING = "stopping"


class Readiness:
    def __init__(self, broker: Broker, journal: JournalWriter | None, now: Callable[[], float]) -> None:
        self.stage = Stage.STARTING
        self._broker = broker
        self._journal = journal
        self._now = now
        self._asked: list[Callable[[], str]] = []

    def ask(self, trouble: Callable[[], str]) -> None:
        """``trouble`` is asked from now on. It returns a reason in words, which anybody may read; empty: there is none.
        """
        self._asked.append(trouble)

    def reasons(self) -> list[str]:
        """Returns why the broker is not ready, a line each."""
        found = [] if self.stage is Stage.SERVING else [f"the broker is {self.stage}"]
        if self._journal is not None and self._journal.error:
            found.append(f"the journal cannot be written, and nothing durable is confirmed: {self._journal.error}")
        now = self._now()
        found += [
            f"records cannot go to disk: {pool.disk_error}"
            for pool in self._broker.registry.distinct_pools() if pool.disk_broken(now)
        ]  # fmt: skip
        found += [text for trouble in self._asked if (text := trouble())]
        return found
