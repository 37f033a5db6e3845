"""What a conflated consumer is owed: counted down as records turn out to be left out, and counted once."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from headway.core.base.errors import Reason
from headway.core.consumer.conflation import Conflation
from headway.core.consumer.progress.counters import Counters


@pytest.mark.parametrize(
    ("on_their_way", "owed_bytes", "skipped_bytes"), [(3, 750, 250), (1, 250, 750), (0, 0, 1000)]
)
def test_what_is_left_out_is_owed_no_longer(on_their_way: int, owed_bytes: int, skipped_bytes: int) -> None:
    """Offered less sent less skipped is what waits: bytes that are skipped and still owed would count twice."""
    conflation, gaps = Conflation(), []
    conflation.owed_records, conflation.owed_bytes = 4, 1000
    subscription = SimpleNamespace(counters=Counters(0, 0), note_gap=lambda *gap: gaps.append(gap))
    conflation.own_up(subscription, on_their_way)
    assert (conflation.owed_records, conflation.owed_bytes) == (on_their_way, owed_bytes)
    assert subscription.counters.skipped_bytes == skipped_bytes
    assert [(gap[0], gap[-1]) for gap in gaps] == [(4 - on_their_way, Reason.CONFLATED)]
