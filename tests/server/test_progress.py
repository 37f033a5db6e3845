"""A start that takes long says how far it is; one that does not says nothing."""

from __future__ import annotations

import pytest
from tests.server.journal_stage import JournalStage, Publisher

from headway.server.journal import recovery as progress


class Clock:
    """Each look at it is so much later."""

    def __init__(self, step_s: float) -> None:
        self.step_s, self.time_s = step_s, 0.0

    def __call__(self) -> float:
        self.time_s += self.step_s
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
    clock, made = Clock(0.5 if slow else 0.0), progress.RecoveryProgress
    monkeypatch.setattr(
        "headway.server.journal.recovery.RecoveryProgress", lambda: made(clock)
    )
    with caplog.at_level("INFO", logger="headway"):
        assert JournalStage(stage.files).all_of("q") == list(range(3000))
    said = [line.split(": ", 1)[1] for line in caplog.messages if line.startswith("reading the journal: ")]
    assert [any(line.endswith(end) for line in said) for end in ("are checked", "are read", "are back")] == [slow] * 3
