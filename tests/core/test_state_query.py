"""Queries of the state: exact as of their sequence while the state changes, pages, and orders over mixed types."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.queries import scan

from headway.core.base import Refused
from headway.core.log import SAVED_RECORD_BYTES, Pool, State, StateReading, Tab
from headway.core.log import states as reading_module
from headway.core.message import Record, compile_key
from headway.core.query import NoState, StateQuery, StateRequest
from headway.core.query.state_query import PAGE_MAX, STEP_RECORDS
from headway.core.routing import Registry
from headway.core.selector import BadOrder, compile_ordering

MISSING = (3,)


class World:
    """A registry with one keyed topic, and the truth: the latest record per key."""

    def __init__(self, registry: Registry, memory: int = 10**9) -> None:
        self.registry = registry
        self.state = State("t/#", compile_key("/k"), Pool("p", memory, 0), declared=True)
        registry.router.add_state(self.state)
        self.truth: dict[tuple[str, str], Record] = {}

    def put(self, key: str, topic: str = "t/a", **fields: object) -> None:
        self.registry.sequence += 1
        record = Record(topic, json.dumps({"k": key} | fields).encode(), sequence=self.registry.sequence)
        self.state.put(record)
        self.truth[topic, key] = record

    def query(self, filter: str = "t/#", **more: object) -> StateQuery:
        return scan(StateRequest(filter, **more), self.registry)  # type: ignore[arg-type]

    def ask(self, filter: str = "t/#", **more: object) -> list[Record]:
        query = self.query(filter, **more)
        try:
            return [record for some in query.steps() for record in some]
        finally:
            query.close()

    def keys(self, **more: object) -> list[str]:
        return [json.loads(record.payload)["k"] for record in self.ask(**more)]


@pytest.fixture
def world(make_registry: Registry) -> World:
    return World(make_registry)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), newest_first=st.booleans(), memory=st.sampled_from([10**9, 100_000]))
def test_a_reading_is_exact_as_of_its_sequence_whatever_changes_meanwhile(
    seed: int, newest_first: bool, memory: int
) -> None:
    chance = random.Random(seed)
    state = State("#", compile_key("/k"), Pool("p", memory, 0), declared=True)
    for sequence in range(1, 101):
        state.put(Record("t", b'{"k":%d}' % chance.randrange(60), sequence=sequence))
    truth = [record for entry in _entries(state) if (record := entry) is not None]
    reading = StateReading(state, 100, Tab(state.pool), newest_first=newest_first)
    other = StateReading(state, 100, Tab(state.pool))
    found: list[Record] = []
    sequence, last = 100, False
    while not last:
        most = chance.randrange(1, 12)
        some = reading.take(most)
        found += some
        last = len(some) < most
        for _ in range(chance.randrange(8)):
            sequence += 1
            state.put(Record("t", b'{"k":%d}' % chance.randrange(80), sequence=sequence))
        state.check()
    assert found == (truth[::-1] if newest_first else truth)
    assert other.take(1000) == truth
    assert not state.readings, "they are closed"


def _entries(state: State) -> Iterator[Record | None]:
    entry = state.oldest
    while entry is not state.ends:
        yield entry.record
        entry = entry.after


def test_a_reading_that_is_too_slow_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_module, "SAVED_BYTES_MAX", 1000)
    state = State("#", compile_key("/k"), Pool("p", 10**9, 0), declared=True)
    for sequence in range(1, 21):
        state.put(Record("t", b'{"k":%d}' % (sequence % 10), sequence=sequence))
    reading = StateReading(state, 20, Tab(state.pool))
    assert len(reading.take(2)) == 2
    for sequence in range(21, 31):
        state.put(Record("t", b'{"k":%d}' % (sequence % 10), sequence=sequence))
    assert "changes faster" in reading.given_up
    assert reading.take(10) == []
    assert (reading.saved_bytes, dict(state.readings)) == (0, {})


def test_what_the_queries_of_one_client_hold_is_on_its_tab(make_registry: Registry) -> None:
    world = World(make_registry, memory=400_000)
    pool = world.state.pool
    pool.clients_free_bytes = 0
    tab = Tab(pool)
    for number in range(100):
        world.put(f"k{number}", pad="." * 300)
    first, second = (scan(StateRequest("t/#"), world.registry, tab) for _ in range(2))
    saved = [world.truth["t/a", f"k{number}"] for number in range(20)]
    for number in range(20):
        world.put(f"k{number}")
    assert tab.bytes == pool.clients_bytes == 2 * sum(SAVED_RECORD_BYTES + record.size for record in saved)
    for number in range(20, 100):
        world.put(f"k{number}")
    assert tab.limit == 100_000 > tab.bytes
    gone = [query for query in (first, second) if query.given_up]
    assert "changes faster than this answer is read: this client takes up" in gone[0].given_up
    assert "most of it queries; it may take up" in gone[0].given_up
    for query in (first, second):
        query.close()
    assert (tab.bytes, pool.clients_bytes, len(world.state.readings)) == (0, 0, 0)


def test_the_page_of_a_query_is_on_the_tab_of_its_client(make_registry: Registry) -> None:
    world = World(make_registry, memory=4_000_000)
    world.state.pool.clients_free_bytes = 0
    tab = Tab(world.state.pool)
    for number in range(1000):
        world.put(f"k{number}", rank=number)
    one = SAVED_RECORD_BYTES + world.truth["t/a", "k999"].size
    query = scan(StateRequest("t/#", order_by="/rank DESC", top=10), world.registry, tab)
    most = [tab.bytes for _ in query.steps()]
    assert most[-1] == max(most) == 10 * one
    query.close()
    assert tab.bytes == 0
    world.state.pool.memory_limit = 40_000
    query = scan(StateRequest("t/#", order_by="/rank DESC", top=100), world.registry, tab)
    assert [record for some in query.steps() for record in some] == []
    assert "there is no room for its page: this client takes up" in query.given_up
    assert tab.bytes <= tab.limit + one
    query.close()
    assert tab.bytes == 0


def test_a_query_that_is_closed_before_its_first_step_is_read_no_more(world: World) -> None:
    world.put("a")
    query = world.query()
    query.steps()
    query.close()
    assert not world.state.readings


def test_a_state_that_ends_gives_its_readings_up(world: World) -> None:
    world.put("a")
    query = world.query()
    steps = world.state.close()
    assert "not kept any more" in query.given_up
    for _ in steps:
        pass
    assert [some for some in query.steps() if some] == []


def test_pages_by_offset_and_from_the_newest(world: World) -> None:
    for number in range(300):
        world.put(f"k{number}")
    world.put("k0")
    assert world.keys(top=2) == ["k1", "k2"]
    assert world.keys(order_by="offset desc", top=3) == ["k0", "k299", "k298"]
    assert world.keys(top=2, skip=299) == ["k0"]
    assert world.keys(top=0) == []
    assert len(world.keys()) == 300
    assert not world.state.readings


def test_a_page_of_the_first_looks_at_few(world: World) -> None:
    for number in range(10 * STEP_RECORDS):
        world.put(f"k{number}")
    for more in ({}, {"order_by": "offset DESC"}):
        query = world.query(top=20, **more)
        assert sum(map(len, query.steps())) == 20
        assert query.looked_at == STEP_RECORDS


@settings(max_examples=40, deadline=None)
@given(
    values=st.lists(
        st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.floats(-5, 5), st.text(max_size=3),
                  st.just([1]), st.just({"x": 1})),
        max_size=30,
    ),
    down=st.booleans(), top=st.integers(0, 35), skip=st.integers(0, 5),
)  # fmt: skip
def test_orders_over_mixed_types_are_the_stated_order(values: list[object], down: bool, top: int, skip: int) -> None:
    world = World(_a_registry())
    for number, value in enumerate(values):
        world.put(str(number), value=value)
    there = [number for number, value in enumerate(values) if _stated(value) != MISSING]
    expected = sorted(there, key=lambda number: _stated(values[number]), reverse=down)
    if down:  # equal ones stand by offset nevertheless
        expected = sorted(there, key=lambda number: (_stated(values[number]), -number), reverse=True)
    expected += [number for number in range(len(values)) if number not in there]
    order = f"/value {'DESC' if down else 'ASC'}"
    assert world.keys(order_by=order, top=top, skip=skip) == [str(n) for n in expected][skip : skip + top]


def _stated(value: object) -> tuple[object, ...]:
    if isinstance(value, bool):
        return 0, value
    if isinstance(value, (int, float)):
        return 1, value
    return (2, value) if isinstance(value, str) else MISSING


def test_several_terms_selector_topic_and_key(world: World) -> None:
    for number, (carrier, delay) in enumerate([("UA", 5), ("DL", 7), ("UA", 30), ("DL", 1), ("AA", 9)]):
        world.put(str(number), topic=f"t/{carrier}", carrier=carrier, delay=delay)
    assert world.keys(order_by="/carrier, /delay DESC", top=9) == ["4", "1", "3", "2", "0"]
    assert world.keys(order_by="topic DESC, key", selector="delay > 4", top=9) == ["0", "2", "1", "4"]
    assert world.keys(order_by="/delay", top=1, skip=1, filter="t/UA") == ["2"]
    assert world.keys(selector="key = '3'") == ["3"]


def test_a_query_of_a_filter_without_a_state_says_so(world: World) -> None:
    with pytest.raises(NoState, match=r"^# has no state"):
        world.query("#")


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ("delay", "is none of: a JSON pointer"), ("/a,", "'' is none of"), ("", "is none of"), ("property:", "none of"),
        ("/a DOWN", "page of at most"), ("/~2", "JSON pointer '~'"), ("/" + "a" * 2000, "characters"),
        (",".join(["/a"] * 9), "9 terms, 8"), ("/a/" * 30, "levels"), ("/a\0 DESC DESC", "page of at most"),
    ],
)  # fmt: skip
def test_a_bad_order_is_one_clear_line(world: World, order: str, words: str) -> None:
    with pytest.raises(Refused, match=words) as caught:
        world.query(order_by=order)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
    assert not world.state.readings


def test_an_ordered_answer_has_a_page(world: World) -> None:
    with pytest.raises(Refused, match="a page of at most 10,000 records: say top"):
        world.query(order_by="/a")
    with pytest.raises(Refused, match="skip and top are 10,001 together"):
        world.query(order_by="/a", top=PAGE_MAX, skip=1)
    with pytest.raises(Refused, match="selector, character 5"):
        world.query(selector="a = ;")
    with pytest.raises(BadOrder):
        compile_ordering("nothing")


def _a_registry() -> Registry:
    from tests.core.stage import Stage

    return Stage().broker.registry


@pytest.fixture
def make_registry() -> Registry:
    return _a_registry()
