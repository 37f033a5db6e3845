"""Snapshot and live under load, over each protocol: two rounds of what ``make soak`` does 200 times."""

from __future__ import annotations

import pytest
from tests.interop.atomic_clients import OVER, rounds
from tests.interop.atomic_stories import CONFIG, LIVE, Seen, Truth, checked
from tests.interop.conftest import BrokerFactory

ROUNDS = 2


@pytest.mark.parametrize("over", OVER)
def test_no_record_is_lost_or_doubled_between_snapshot_and_live(start: BrokerFactory, over: str) -> None:
    rounds(start(CONFIG), over, ROUNDS)


def wire(truth: Truth, as_of: int, *, lost: int = -1, doubled: int = -1, old: str = "") -> list[Seen]:
    """What a client is told that comes at an update; with a fault, if one is named."""
    state = truth.state(as_of)
    if old:
        state[old] -= 1
    live = [number for number in range(as_of + 1, as_of + 2 * LIVE) if number != lost]
    if doubled >= 0:
        live.insert(live.index(doubled), doubled)
    return [
        Seen("snapshot_begin", offset=as_of), *(Seen("", key, number) for key, number in state.items()),
        Seen("snapshot_end", offset=as_of, records=len(state)),
        *(Seen("delete" if truth.deletes(number) else "", truth.update(number)[0], number) for number in live),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "fault", [{}, {"lost": 5001}, {"lost": 5040}, {"doubled": 5001}, {"doubled": 5030}, {"old": "a key"}]
)
def test_the_check_sees_what_is_lost_or_doubled(fault: dict[str, object]) -> None:
    truth = Truth(1)
    given = fault | ({"old": next(iter(truth.state(5000)))} if "old" in fault else {})
    seen = iter(wire(truth, 5000, **given))  # type: ignore[arg-type]
    if not fault:
        assert checked(seen, truth, 0) == 0
        return
    with pytest.raises(AssertionError, match=r"lost or doubled|as of 5000"):
        checked(seen, truth, 0)
