"""Live queries of which very much changes at once, or for which very many come: a turn does some of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.core.stage import Stage
from tests.core.test_live_pages import PAGE, TOPIC, counted, put

from headway.core.live.kept_rows import KeptGroups
from headway.core.live.live_queries import LOOKS_EACH, LOOKS_MAX, TOLD_MAX
from headway.core.live.ordered_pages import TOUCHED_MAX, Page
from headway.core.message.record import Record
from headway.core.query.state_query import Match
from headway.core.routing.publishing import LOOK_WORK

PAGES, TOP = 400, 4


def crossed(stage: Stage) -> None:
    """Publishes changes that each cross all pages."""
    for at in range(10):
        payload = b'{"k": "k0", "v": %d}' % (10_000 + at if at % 2 else -at)
        stage.broker.publish(None, [Record("t/x", payload).run()], stage.now)


def flushes(stage: Stage) -> Iterator[None]:
    """Goes from turn to turn until nothing is left."""
    stage.broker.flush(stage.now)
    yield
    while stage.broker.has_work:
        stage.broker.flush(stage.now)
        yield


def with_pages() -> Stage:
    stage = Stage(TOPIC, memory="256MB")
    put(stage, *((f"k{number}", number) for number in range(PAGES + TOP)))
    for at in range(PAGES):
        stage.consumer(f"w{at}", "t/#", options=PAGE | {"top": str(TOP), "skip": str(at)})
    while stage.broker.has_work:
        stage.broker.flush(stage.now)
    return stage


def test_changes_that_cross_very_many_pages_are_told_little_by_little(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = with_pages()
    calls, turns = counted(monkeypatch), []
    crossed(stage)
    for _ in flushes(stage):
        turns.append(len(calls))
        calls.clear()
    assert sum(turns) >= 2 * (PAGES - 1), "each page has another record"
    assert max(turns) <= TOLD_MAX + 2 * TOP
    stage.check()


def test_a_turn_notes_changes_for_some_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, touched = with_pages(), [0]
    touch = Page.touch

    def noted(self: Page, keys: Any) -> None:
        touched[-1] += 1
        touch(self, keys)

    monkeypatch.setattr(Page, "touch", noted)
    for at in range(40):
        payload = b'{"k": "k%d", "v": %d}' % (at, 10_000 + at)
        stage.broker.publish(None, [Record("t/x", payload).run()], stage.now)
    for _ in flushes(stage):
        touched.append(0)
    assert sum(touched) >= 30 * PAGES
    assert max(touched) <= TOUCHED_MAX + PAGES


def test_all_who_come_between_two_changes_share_one_list(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = with_pages()
    listed: list[int] = []
    in_order = Page._keys_in_order

    def noted(self: Page) -> Any:
        listed.append(self.start)
        return in_order(self)

    monkeypatch.setattr(Page, "_keys_in_order", noted)
    options = PAGE | {"top": str(TOP), "skip": "3"}
    first = [stage.consumer(f"a{number}", "t/#", options=options) for number in range(50)]
    stage.turn()
    assert len(listed) <= 1
    put(stage, ("k0", 10_000))
    second = [stage.consumer(f"b{number}", "t/#", options=options) for number in range(50)]
    stage.turn()
    assert len(listed) <= 2
    for some in (first, second):
        assert len({tuple(seen.payload for seen in one.seen[:6]) for one in some}) == 1
    assert first[0].seen[1].payload != second[0].seen[1].payload


def test_an_aggregate_of_very_many_groups_is_told_little_by_little() -> None:
    stage, groups = Stage(TOPIC, memory="256MB"), 1000
    put(stage, *((f"k{number}", 1) for number in range(groups)))
    watcher = stage.consumer("w", "t/#", options={"select": "/k, sum(/v)", "group_by": "/k"})

    def told_in_turns() -> list[int]:
        turns, before = [], stage.broker.registry.sequence
        for _ in flushes(stage):
            turns.append(stage.broker.registry.sequence - before)
            before = stage.broker.registry.sequence
        return turns

    for publish in (False, True):  # the first look, and then changes
        if publish:
            for number in range(groups):
                payload = b'{"k": "k%d", "v": 2}' % number
                stage.broker.publish(None, [Record("t/x", payload).run()], stage.now)
        turns = told_in_turns()
        assert sum(turns) == groups
        assert max(turns) <= TOLD_MAX
        stage.turn()
    last = {seen.key: json.loads(seen.payload)["sum(/v)"] for seen in watcher.seen if seen.event is None}
    assert last == {f"k{number}": 2 for number in range(groups)}


ORDERS = ({"order_by": "/v"}, {"order_by": "/v DESC, topic"})
AGGREGATES = tuple({"select": f"count(*) AS c{at}, sum(/v)", "group_by": "/v"} for at in range(8))


def with_keys(count: int) -> Stage:
    stage = Stage(TOPIC, memory="256MB")
    for number in range(count):
        payload = b'{"k": "k%d", "v": %d}' % (number, number % 50)
        stage.broker.publish(None, [Record("t/x", payload).run()], stage.now)
    stage.turn()
    return stage


@pytest.mark.parametrize("several", [ORDERS[:1], ORDERS, AGGREGATES[:1], AGGREGATES], ids=len)
def test_first_look_at_a_large_state_is_shared_out_to_turns(
    several: tuple[dict[str, str], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if all of the records came before the first live query of the broker did."""
    keys, turns = 6000, [0]
    stage = with_keys(keys)
    accepts, add = Match.accepts, KeptGroups.add

    def looked(self: Match, record: Record) -> bool:
        turns[-1] += 1
        return accepts(self, record)

    monkeypatch.setattr(Match, "accepts", looked)
    added = [0]
    monkeypatch.setattr(KeptGroups, "add", lambda *found: added.append(added.pop() + 1) or add(*found))
    for at, options in enumerate(several):
        stage.consumer(f"w{at}", "t/#", options=PAGE | {"top": "10"} | options if "order_by" in options else options)
    for _ in flushes(stage):
        turns.append(0)
    assert sum(turns) >= keys * len(several)
    assert max(turns) <= LOOKS_MAX + LOOKS_EACH * len(several)
    assert added[0] == (0 if "order_by" in several[0] else keys * len(several))
    stage.check()


def test_a_large_page_is_told_little_by_little() -> None:
    stage, told = with_keys(3000), list[int]()
    watcher = stage.consumer("w", "t/#", options=PAGE | {"top": "2000"})
    before = stage.broker.registry.sequence
    for _ in flushes(stage):
        told.append(stage.broker.registry.sequence - before)
        before = stage.broker.registry.sequence
    assert sum(told) == 2000
    assert max(told) <= TOLD_MAX
    stage.turn()
    assert len({one.payload for one in watcher.seen if one.payload}) == 2000
    stage.check()


def test_publishers_pay_for_those_who_look_at_what_they_change() -> None:
    stage = with_keys(10)
    run = Record("t/x", b'{"k": "k1", "v": 7}').run
    session = stage.consumer("p", "other").session
    alone = [stage.broker.intake.publish_some(session, [run()], stage.now, 1).work for _ in range(2)][-1]
    for at, options in enumerate(AGGREGATES):
        stage.consumer(f"w{at}", "t/#", options=options)
    stage.turn()
    assert stage.broker.intake.publish_some(session, [run()], stage.now, 1).work >= alone + len(AGGREGATES) * LOOK_WORK
