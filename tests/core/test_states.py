"""States that are one of a few: the tables of their legal moves."""

from __future__ import annotations

import pytest
from tests.core.stage import STUCK, Stage

from headway.core.base import IllegalMove, moved
from headway.core.consumer.conflation import MOVES, Mode


@pytest.mark.parametrize("old", Mode)
@pytest.mark.parametrize("new", Mode)
def test_only_legal_moves_are_made(old: Mode, new: Mode) -> None:
    if new in MOVES[old]:
        assert moved(MOVES, old, new) is new
    else:
        with pytest.raises(IllegalMove):
            moved(MOVES, old, new)


def test_conflation_is_started_once() -> None:
    stage = Stage()
    client = stage.client("a", reads=STUCK)
    subscription = client.subscribe("t", conflate="0")
    assert subscription.conflation.mode is Mode.RESTING
    with pytest.raises(IllegalMove):
        subscription.conflation.start(subscription, stage.now, 0)
    assert subscription.conflation.mode is Mode.RESTING
