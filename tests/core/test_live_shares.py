"""Live queries that one user's clients are the first to ask for: a share of what there may be, and no more."""

from __future__ import annotations

import pytest
from tests.core.stage import Client, Stage
from tests.core.test_live_pages import TOPIC, put

from headway.core.base import Reason, Refused
from headway.core.live import live_queries
from headway.core.query import kept_order as kept_orders


def clients_of(stage: Stage, owner: str, count: int) -> list[Client]:
    clients = [stage.client(f"{owner} {at}") for at in range(count)]
    for client in clients:
        stage.broker.registry.sessions[client.name].owner = owner
    return clients


AGGREGATE = {"select": "count(*)"}


def subscribe(client: Client, at: int, **options: str) -> None:
    client.subscribe("/".join(["t", *"+" * at, "#"]), **options)


@pytest.mark.parametrize(
    ("table", "options"), [("ROWS_MAX", AGGREGATE), ("PAGES_MAX", {"order_by": "offset", "top": "3"})]
)
def test_one_user_has_half_of_the_live_queries(
    monkeypatch: pytest.MonkeyPatch, table: str, options: dict[str, str]
) -> None:
    monkeypatch.setattr(live_queries, table, 4)
    stage = Stage(TOPIC)
    put(stage, ("a", 1))
    first, second, third = clients_of(stage, "user greedy", 3)
    (other,) = clients_of(stage, "user other", 1)
    subscribe(first, 0, **options)
    subscribe(second, 1, **options | ({} if table == "ROWS_MAX" else {"top": "4"}))
    with pytest.raises(Refused, match=r"max_user_share permits user greedy 2 of the 4") as error:
        subscribe(third, 2, **options)
    assert error.value.reason is Reason.USER_LIMIT
    subscribe(third, 0, **options)  # it is there already
    subscribe(other, 2, **options)
    subscribe(other, 3, **options)
    second.leave()
    stage.turn()
    subscribe(third, 4, **options)
    for client in (first, third, other):
        client.leave()
    stage.turn()
    assert not stage.broker.has_work, "a query that nobody asks for any more keeps nothing busy"
    for at in range(2):  # nothing counts any more
        subscribe(stage.client(f"new {at}") if at else clients_of(stage, "user greedy", 1)[0], 5 + at, **options)


def test_one_user_has_half_of_the_orders_that_live_pages_follow() -> None:
    stage = Stage(TOPIC)
    put(stage, ("a", 1))
    greedy = clients_of(stage, "user greedy", 7)
    (other,) = clients_of(stage, "user other", 1)
    for at, client in enumerate(greedy[:-1]):
        subscribe(client, 0, order_by=f"/a{at}", top="3")
    with pytest.raises(Refused, match=r"max_user_share permits user greedy 6 of the 12 orders"):
        subscribe(greedy[-1], 0, order_by="/b", top="3")
    subscribe(greedy[-1], 0, order_by="/a0", top="2")
    for at in range(kept_orders.FOLLOWED_PER_CLIENT):
        subscribe(other, at, order_by=f"/b{at}", top="3")
