"""Orders that the configuration declares are kept from the start, and are tried again where there was no room."""

from __future__ import annotations

import pytest
from tests.core.queries import ask
from tests.core.stage import Stage
from tests.core.test_live_pages import PAGE, put, told

from headway.core.live import live_queries
from headway.core.log import StateTerms
from headway.core.query import StateRequest

ORDERS = ("/v DESC", "/k")


def staged() -> Stage:
    stage = Stage()
    stage.broker.declare_state(StateTerms("t/#", "/k", orders=ORDERS))
    return stage


def looked_at(stage: Stage, order_by: str) -> int:
    request = StateRequest("t/#", order_by=order_by, top=3)
    query = ask(request, stage.broker.registry, stage.broker.orders, stage.now)
    for _ in query.prepare():
        pass
    records = [record for some in query.steps() for record in some]
    assert len(records) == 3
    query.close()
    return query.looked_at


def test_the_first_page_in_a_declared_order_looks_at_no_key() -> None:
    stage = staged()
    put(stage, *((f"k{number}", number) for number in range(1000)))
    assert looked_at(stage, "/v DESC") == 0
    assert looked_at(stage, "/k") == 0
    assert looked_at(stage, "/v") == 1000
    stage.run(100.0)
    put(stage, ("k1", 5000))
    assert looked_at(stage, "/v DESC") == 0


def test_a_declared_order_outlives_its_pages() -> None:
    stage = staged()
    put(stage, ("a", 1), ("b", 2))
    watcher = stage.consumer("watcher", "t/#", options=PAGE)
    stage.turn()
    assert len(told(watcher)) == 4
    watcher.leave()
    stage.run(100.0)
    assert len(stage.broker.orders) == 2


def test_a_reload_changes_which_orders_are_kept() -> None:
    stage = staged()
    put(stage, ("a", 1))
    stage.broker.declare_states([StateTerms("t/#", "/k", orders=("/v",))], stage.now)
    stage.run(3.0)
    assert [name[-1] for name in stage.broker.orders._orders] == ["/v"]
    stage.broker.declare_states([StateTerms("t/#", "/k")], stage.now)
    stage.run(3.0)
    assert not len(stage.broker.orders)


def test_a_declared_order_without_room_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = staged()
    put(stage, *((f"k{number}", number) for number in range(100)))
    for order in list(stage.broker.orders._orders.values()):
        order.bytes_max = 0
    put(stage, ("k1", 1000))
    stage.run(2.0)
    assert not len(stage.broker.orders)
    stage.run(live_queries.DECLARE_AGAIN_S)
    assert len(stage.broker.orders) == 2
    assert looked_at(stage, "/v DESC") == 0
