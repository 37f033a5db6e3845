"""A start that takes long says how far it is; one that does not says nothing."""

from __future__ import annotations

import pytest
from tests.server.journal_stage import JournalStage, Publisher

from headway.server.journal.recovery import progress


class Slow(progress.RecoveryProgress):
    """Each look at the clock is half a second later."""

    def __init__(self) -> None:
        self.time_s = 0.0
        super().__init__(self.later)

    def later(self) -> float:
        self.time_s += 0.5
        return self.time_s


@pytest.mark.parametrize("slow", [True, False])
def test_it_says_how_far_it_is(slow: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    stage = JournalStage()
    stage.declare("q")
    publisher = Publisher(stage)
    for number in range(3000):
        publisher.publish("q", number)
        stage.turn()
    stage.journal.close()
    if slow:
        monkeypatch.setattr("headway.server.journal.recovery.opening.RecoveryProgress", Slow)
    with caplog.at_level("INFO", logger="headway"):
        assert JournalStage(stage.files).all_of("q") == list(range(3000))
    said = [line.split(": ", 1)[1] for line in caplog.messages if line.startswith("reading the journal: ")]
    assert [any(line.endswith(end) for line in said) for end in ("are checked", "are read", "are back")] == [slow] * 3
