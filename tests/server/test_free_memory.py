"""Memory that clients have left goes back to the operating system."""

from __future__ import annotations

import pytest
from tests.server.pretended import Loop

from headway.server import loop as module
from headway.server.loop import TRIM_BYTES, TRIM_EVERY_S, TRIM_LOOK_S, FreeMemory, Pulse

MB = 1024 * 1024


class Machine:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop, self.used, self.rss, self.trimmed = Loop(), 0, 70 * MB, 0
        self.loop.time = lambda: self.loop.now  # type: ignore[attr-defined]
        monkeypatch.setattr(module, "memory_rss_bytes", lambda: self.rss)
        monkeypatch.setattr(module, "_malloc_trim", self._trim)
        self.memory = FreeMemory(self.loop, lambda: self.used, Pulse(lambda: self.loop.now))  # type: ignore[arg-type]
        self.memory.start()

    def _trim(self) -> None:
        self.trimmed += 1
        self.rss = 70 * MB + self.used

    def looks(self, times: int = 1) -> int:
        """Returns how often memory was given back since the last time."""
        before = self.trimmed
        for timer in self.loop.due(self.loop.now + times * TRIM_LOOK_S):
            timer.call()
        return self.trimmed - before


def test_what_pools_counted_and_count_no_more_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.used, machine.rss = 2 * TRIM_BYTES, 70 * MB + 2 * TRIM_BYTES
    for _ in range(4):  # it grows on
        machine.rss += TRIM_BYTES
        assert machine.looks() == 0
    assert machine.looks() == 1, "it has grown, and has stopped growing"
    assert machine.looks(int(TRIM_EVERY_S / TRIM_LOOK_S) * 3) == 0, "what is in use is not looked for again and again"
    machine.used = TRIM_BYTES // 2
    assert machine.looks() == 1
    assert machine.rss == 70 * MB + machine.used


def test_a_little_is_left_where_it_is_and_nobody_is_kept_waiting_often(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.used = TRIM_BYTES - 1
    assert machine.looks(5) == 0
    machine.used = 0
    assert machine.looks(5) == 0
    found = 0
    for _ in range(10):
        machine.used = 2 * TRIM_BYTES
        found += machine.looks()
        machine.used = 0
        found += machine.looks()
    assert found == 2 == 10 * 2 * TRIM_LOOK_S // TRIM_EVERY_S
    machine.memory.stop()
    machine.used = 2 * TRIM_BYTES
    assert machine.looks(30) == 0
