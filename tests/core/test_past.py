"""States as they were: what they hold is on the tab of who asks, within limits, and goes again."""

from __future__ import annotations

import pytest

from headway.core.base import Refused
from headway.core.log import Pool, State, Tab
from headway.core.message import Record, compile_key
from headway.core.query import Past, StateRequest, begin_query
from headway.core.query import state_query as past_module


def filled(count: int, tab: Tab, tombstones: bool = True) -> Past:
    now = State("t/#", compile_key("/k"), Pool("p", 10**9, 0), declared=True)
    now.tombstones = tombstones
    past = Past(now, count, tab)
    for number in range(1, count + 1):
        past.add(Record("t/x", b'{"k":"%d"}' % number).run(), number, 1.0)
    return past


def test_it_is_on_the_tab_until_it_is_freed() -> None:
    tab = Tab(Pool("p", 10**9, 0))
    past = filled(300, tab)
    past.count()
    assert tab.bytes == past.state.bytes > 300 * 500
    query = begin_query(StateRequest("t/#", at="300"), past, tab)
    assert [record.sequence for some in query.steps() for record in some] == list(range(1, 301))
    assert query.as_of == 300
    query.close()
    for _ in past.close():
        pass
    assert (tab.bytes, len(past.state)) == (0, 0)


def test_one_that_is_too_large_is_refused_and_never_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Pool("p", 400_000, 0, clients_free_bytes=0)
    past = filled(300, Tab(small))
    with pytest.raises(Refused, match="this client takes up 0 B besides records"):
        past.count()
    assert small.clients_bytes == 0
    monkeypatch.setattr(past_module, "PAST_BYTES_MAX", 20_000)
    with pytest.raises(Refused, match=r"^at: the state as it was takes up more than .* ask for fewer topics"):
        filled(100, Tab(Pool("p", 10**9, 0))).count()
    evicted = filled(2000, Tab(Pool("p", 10**9, 0)))
    assert evicted.state.evicted_records
    with pytest.raises(Refused, match="ask for fewer topics"):
        evicted.count()


@pytest.mark.parametrize("tombstones", [True, False])
def test_deletes_are_read_as_the_state_reads_them(tombstones: bool) -> None:
    now = State("t/#", compile_key("topic"), Pool("p", 10**9, 0), declared=True)
    now.tombstones = tombstones
    past = Past(now, 2, Tab(now.pool))
    past.add(Record("t/x", b"1").run(), 1, 1.0)
    past.add(Record("t/x", b"").run(), 2, 1.0)
    assert len(past.state) == (0 if tombstones else 1)
