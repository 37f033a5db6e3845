"""Kept orders: each page is the truth as of its sequence, whatever changed; bounded work, and memory that goes."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.queries import ask, scan
from tests.core.stage import Stage

from headway.core.log import Pool, State
from headway.core.message import Properties, Record, compile_key
from headway.core.query import KeptOrders, StateQuery, StateRequest
from headway.core.query import kept_order as order_module
from headway.core.query import kept_order as orders_module
from headway.core.query.kept_order import ORDERS_MAX, WANTED_S
from headway.core.query.state_query import STEP_RECORDS
from headway.core.routing import Registry
from headway.core.selector import place_of


class World:
    """A registry with one keyed topic, whose queries share kept orders."""

    def __init__(self, memory: int = 10**9) -> None:
        self.registry: Registry = Stage().broker.registry
        self.pool = Pool("p", memory, 0, clients_free_bytes=10**9)
        self.state = State("t/#", compile_key("/k"), self.pool, declared=True)
        self.registry.router.add_state(self.state)
        self.orders = KeptOrders(self.registry)
        self.now = 0.0

    def put(self, key: object, value: object, topic: str = "t/a") -> None:
        self.registry.sequence += 1
        payload = json.dumps({"k": key, "v": value}).encode()
        self.state.put(Record(topic, payload, sequence=self.registry.sequence))

    def delete(self, key: object, topic: str = "t/a") -> None:
        self.registry.sequence += 1
        properties = Properties(user=(("key", str(key)), ("v", "5")))
        self.state.change(Record(topic, b"", properties, sequence=self.registry.sequence))

    def query(self, filter: str = "t/#", order_by: str = "/v", top: int = 20, skip: int = 0, client: str = "",
              **more: object) -> StateQuery:
        request = StateRequest(filter, order_by=order_by, top=top, skip=skip, **more)  # type: ignore[arg-type]
        return ask(request, self.registry, self.orders, self.now, client)

    def ask(self, **more: object) -> list[int]:
        """Returns the sequences of the answer."""
        query = self.query(**more)  # type: ignore[arg-type]
        for _ in query.prepare():
            pass
        return taken(query)

    def looked_at(self, **more: object) -> int:
        query = self.query(**more)  # type: ignore[arg-type]
        for _ in query.prepare():
            pass
        query.close()
        return query.looked_at

    def scanned(self, **more: object) -> list[int]:
        """Returns the same as a query without a kept order finds it."""
        request = StateRequest("t/#", **({"order_by": "/v", "top": 20} | more))  # type: ignore[arg-type]
        return taken(scan(request, self.registry))


def taken(query: StateQuery) -> list[int]:
    """Returns the sequences of the answer."""
    found = [record.sequence for some in query.steps() for record in some]
    query.close()
    return found


@pytest.fixture
def world() -> World:
    return World()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), memory=st.sampled_from([10**9, 200_000]), block=st.sampled_from([4, 16, 1024]))
def test_each_page_is_the_truth_whatever_changed(seed: int, memory: int, block: int) -> None:
    """Updates, deletes, evictions (in the small pool), catching up in steps while the state changes, several orders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order_module, "BLOCK_MAX", block)
        patch.setattr(order_module, "TIDY_RECORDS", 3)
        world, chance = World(memory), random.Random(seed)
        for _ in range(24):
            for _ in range(chance.randrange(30)):
                world.put(chance.randrange(80), chance.choice([None, True, "x", chance.random(), chance.randrange(9)]))
                if chance.random() < 0.3:
                    world.delete(chance.randrange(80))
            order, skip = chance.choice(["/v", "/v DESC", "topic, /k"]), chance.choice([0, 0, 3, 70])
            more = {"order_by": order, "top": chance.choice([1, 5, 100]), "skip": skip}
            query = world.query(**more)
            for _ in query.prepare():
                if chance.random() < 0.3:
                    world.put(chance.randrange(80), chance.random())
            found = taken(query)
            assert query.as_of == world.registry.sequence
            assert found == world.scanned(**more)
            for kept in world.orders._orders.values():
                kept.check()
        assert not world.state.readings
        held = sum(kept.bytes for kept in world.orders._orders.values())
        assert world.pool.clients_bytes == held, "it is charged, once"
        assert len(world.orders) <= 3, "they are shared"


def test_a_page_of_an_order_that_is_up_to_date_looks_at_nothing(world: World) -> None:
    for number in range(10 * STEP_RECORDS):
        world.put(number, number * 7 % 1000)
    assert world.looked_at() == 10 * STEP_RECORDS
    assert world.looked_at(top=3, skip=2) == 0
    world.put(5, 3)
    world.put(5, 4)
    assert world.looked_at() == 1, "a key that changed twice is put in once"
    assert world.ask(top=4)[-1] == world.scanned(top=4)[-1]


def test_orders_keep_up_by_themselves(world: World) -> None:
    world.ask()
    for number in range(500):
        world.put(number, number)
    steps = 0
    while world.orders.keep_up(world.now):
        steps += 1
    assert steps == 4
    assert world.looked_at() == 0
    assert not world.orders.keep_up(world.now)


def test_records_that_left_the_state_are_a_small_part_of_it(world: World) -> None:
    """Without the tidying the order would have 8000 records here."""
    for number in range(2000):
        world.put(number, number)
    world.ask(top=1)
    for number in range(6000):
        world.put(number % 2000, number)
        world.orders.keep_up(world.now)
    (kept,) = world.orders._orders.values()
    assert sum(len(block.ranks) for block in kept._blocks) < 3000
    kept.check()


def test_it_goes_when_nobody_asks_any_more(world: World) -> None:
    for number in range(5000):
        world.put(number, number)
    world.ask()
    assert world.pool.clients_bytes > 5000 * 90
    world.now = WANTED_S - 1
    world.ask()
    world.now += WANTED_S
    assert not world.orders.keep_up(world.now)
    assert len(world.orders) == 1, "it was asked for in between"
    world.now += 1.5
    world.orders.keep_up(world.now)
    assert (len(world.orders), world.pool.clients_bytes) == (0, 0)


def test_it_goes_with_its_state(world: World) -> None:
    for number in range(300):
        world.put(number, number)
    world.ask()
    waiting = world.query()
    world.registry.router.remove_state(world.state)
    for _ in world.state.close():
        pass
    assert sum(1 for _ in waiting.prepare()) == 0
    assert waiting.given_up == "the state is not kept any more"
    assert sum(map(len, waiting.steps())) == 0
    world.orders.tidy(world.now)
    assert (len(world.orders), world.pool.clients_bytes) == (0, 0)


def test_without_room_the_answer_is_the_same(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders_module, "POOL_SHARE", 0.0001)  # 150,000 bytes
    for number in range(3000):
        world.put(number, -number)
    assert world.ask() == world.scanned()
    assert (len(world.orders), world.pool.clients_bytes) == (1, 0)
    world.orders.tidy(world.now)
    assert len(world.orders) == 0


def test_there_are_so_many_orders_at_most(world: World) -> None:
    world.put(1, 1)
    for number in range(ORDERS_MAX + 3):
        assert world.ask(order_by=f"/v{number}") == [1]
    assert len(world.orders) == ORDERS_MAX


def kept(world: World) -> dict[str, list[str]]:
    """The orders that are kept, by the client that each was made for, the one that waits the longest first."""
    world.orders.tidy(world.now)
    found: dict[str, list[str]] = {}
    for name, order in sorted(world.orders._orders.items(), key=lambda one: one[1].wanted_s):
        found.setdefault(order.client, []).append(name[3])
    return found


def test_who_has_all_orders_makes_room_for_others_up_to_their_share(world: World) -> None:
    world.put(1, 1)
    for number in range(ORDERS_MAX + 3):
        world.now += 1.0
        world.ask(order_by=f"/v{number}", client="greedy")
    for number in range(ORDERS_MAX):
        world.now += 1.0
        assert world.ask(order_by=f"/w{number}", client="other") == [1]
    assert kept(world) == {
        "greedy": [f"/v{number}" for number in range(ORDERS_MAX // 2, ORDERS_MAX)],
        "other": [f"/w{number}" for number in range(ORDERS_MAX // 2)],
    }
    for _ in range(2):
        world.now += 1.0
        world.ask(order_by="/x", client="third")
        world.ask(order_by="/v0", client="greedy")
    assert len(kept(world)["third"]) == 1
    assert {len(kept(world)[client]) for client in ("greedy", "other")} == {7, 8}


def test_who_has_all_memory_of_kept_orders_makes_room_for_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1000):
        world.put(number, -number)
    world.ask()
    size = next(iter(world.orders._orders.values())).bytes
    world.now += WANTED_S + 1
    world.orders.tidy(world.now)
    monkeypatch.setattr(orders_module, "POOL_SHARE", 4.5 * size / world.pool.clients_limit)
    for number in range(8):
        world.now += 1.0
        world.ask(order_by=f"/v, /v{number}", client="greedy")
    assert 3 <= len(kept(world)["greedy"]) <= 4
    for number in range(2):
        world.now += 1.0
        world.ask(order_by=f"/v, /w{number}", client="other")
    assert (len(kept(world)["other"]), len(kept(world)["greedy"])) == (2, 2)
    assert sum(order.bytes for order in world.orders._orders.values()) <= 4.5 * size


def test_an_order_that_changes_faster_than_it_is_brought_up_to_date_is_not_waited_for(world: World) -> None:
    for number in range(1000):
        world.put(number, number)
    query, number = world.query(), 0
    for _ in query.prepare():
        for _ in range(2 * STEP_RECORDS):
            number += 1
            world.put(number % 1000, number)
        assert number < 10**6, "it ends"
    truth = world.scanned()
    assert taken(query) == truth


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**64), 2**64), st.floats(allow_nan=False), st.text(max_size=4),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(one=VALUES, other=VALUES, down=st.booleans())
def test_places_compare_as_the_values_do(one: object, other: object, down: bool) -> None:
    kinds: list[object] = [_kind(value) for value in (one, other)]
    places = [place_of(value, down=down) for value in (one, other)]
    if None in (one, other):
        assert (places[0] < places[1]) == (one is not None and other is None), "missing ones come last"
    elif kinds[0] != kinds[1]:
        assert (places[0] < places[1]) == ((kinds[0] < kinds[1]) != down)  # type: ignore[operator]
    else:
        assert (places[0] == places[1]) == (one == other)
        assert (places[0] < places[1]) == (one > other if down else one < other)  # type: ignore[operator]


def test_whole_numbers_that_are_no_floats_have_places_of_their_own() -> None:
    positive = [2**53, 2**53 + 1, 2**53 + 2, 2**63 - 1, 2**63, 2**64 - 1]
    ascending = [*(-value for value in reversed(positive)), *positive]
    for down in (False, True):
        places = [place_of(value, down=down) for value in ascending]
        assert places == sorted(set(places), reverse=down)


def _kind(value: object) -> int:
    return 0 if isinstance(value, bool) else 1 if isinstance(value, (int, float)) else 2
