"""What a query selects: columns of records, and aggregates of groups, over values of all types."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.queries import ask
from tests.core.stage import Stage

from headway.core.base import Refused
from headway.core.log import Pool, State, Tab
from headway.core.message import Properties, Record, compile_key
from headway.core.query import KeptOrders, Row, RowsQuery, StateRequest
from headway.core.query import state_query as groups_module


class World:
    def __init__(self) -> None:
        self.registry = Stage().broker.registry
        self.state = State("t/#", compile_key("/k"), Pool("p", 10**9, 0), declared=True)
        self.registry.router.add_state(self.state)
        self.orders = KeptOrders(self.registry)

    def put(self, topic: str = "t/a", payload: bytes | None = None, **fields: object) -> None:
        self.registry.sequence += 1
        number = self.registry.sequence
        data = json.dumps({"k": number} | fields).encode() if payload is None else payload
        properties = Properties(user=(("desk", "seven"),))
        self.state.put(Record(topic, data, properties, sequence=number))

    def ask(self, select: str, **more: object) -> list[Row]:
        request = StateRequest("t/#", select=select, **more)  # type: ignore[arg-type]
        tab = Tab(self.state.pool)
        query = ask(request, self.registry, self.orders, tab=tab)
        try:
            for _ in query.prepare():
                pass
        except Refused:
            query.close()
            raise
        assert isinstance(query, RowsQuery)
        rows = [row for some in query.rows() for row in some]
        query.close()
        assert not self.state.readings
        assert tab.bytes == 0
        return rows


@pytest.fixture
def world() -> World:
    return World()


def test_columns_of_each_record(world: World) -> None:
    world.put(symbol="A", bid=1.5, legs=[{"x": 7}], **{"a/b": True, "c~d": None})
    world.put(topic="t/b", payload=b"not JSON")
    world.put(payload=b"[1, 2]")
    assert world.ask("/symbol, /bid AS price, /legs, /legs/0/x, /a~1b, /c~0d, topic, key, offset, property:desk") == [
        {"symbol": "A", "price": 1.5, "legs": [{"x": 7}], "x": 7, "a/b": True, "c~d": None, "topic": "t/a", "key": "1",
         "offset": 1, "desk": "seven"},
        {"symbol": None, "price": None, "legs": None, "x": None, "a/b": None, "c~d": None, "topic": "t/b", "key": None,
         "offset": 2, "desk": "seven"},
        {"symbol": None, "price": None, "legs": None, "x": None, "a/b": None, "c~d": None, "topic": "t/a", "key": None,
         "offset": 3, "desk": "seven"},
    ]  # fmt: skip
    assert world.ask("/bid", order_by="offset DESC", top=1, skip=1) == [{"bid": None}]
    assert world.ask("/k as key, topic", order_by="/k DESC", top=1) == [{"key": 1, "topic": "t/a"}]


def test_aggregates_of_groups(world: World) -> None:
    for carrier, delay in [("UA", 10), ("UA", 20), ("DL", 5), ("DL", None), ("DL", "late"), (None, True), ([], 1)]:
        world.put(carrier=carrier, delay=delay)
    select = "/carrier, avg(/delay) AS delay, count(*) AS flights, COUNT( /delay ), sum(/delay)"
    select += ", min(/delay), max(/delay)"
    names = ["carrier", "delay", "flights", "count(/delay)", "sum(/delay)", "min(/delay)", "max(/delay)"]
    expected: list[Sequence[object]] = [
        ("DL", 5.0, 3, 2, 5, 5, "late"), ("UA", 15.0, 2, 2, 30, 10, 20), (None, 1.0, 2, 2, 1, True, 1),
    ]  # fmt: skip
    rows = [dict(zip(names, one, strict=True)) for one in expected]
    assert world.ask(select, group_by="/carrier") == rows
    assert world.ask(select, group_by="/carrier", order_by="flights, carrier DESC") == [rows[1], rows[2], rows[0]]
    assert world.ask(select, group_by="/carrier", order_by="delay DESC", top=1, skip=1) == [rows[0]]
    assert world.ask("count(*), avg(/nothing)", selector="carrier = 'ZZ'") == [{"count(*)": 0, "avg(/nothing)": None}]
    assert world.ask("/carrier", group_by="/carrier", selector="carrier = 'ZZ'") == []


def test_values_of_groups_are_not_mixed_up(world: World) -> None:
    """In Python, 1 == 1.0 == True."""
    for value in (1, 1.0, True, "1", None, {}, "x" * 2000):
        world.put(value=value)
    assert world.ask("/value, count(*)", group_by="/value") == [
        {"value": True, "count(*)": 1}, {"value": 1, "count(*)": 2}, {"value": "1", "count(*)": 1},
        {"value": None, "count(*)": 3},
    ]  # fmt: skip


@pytest.mark.parametrize("digits", [30, 308, 400])
def test_numbers_of_any_length_have_sums(world: World, digits: int) -> None:
    for _ in range(30):
        world.put(value=10**digits)
    world.put(value=0.5)
    (row,) = world.ask("sum(/value) AS sum, avg(/value) AS avg, max(/value) AS max")
    assert row["sum"] == pytest.approx(3e31 if digits == 30 else float("inf"))
    assert row["avg"] == pytest.approx({30: 3e31 / 31, 308: 30 / 31 * 1e308, 400: float("inf")}[digits])
    assert row["max"] == 10**digits


NUMBERS = st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1), st.booleans(), st.text(max_size=2)), max_size=20)


@settings(max_examples=50, deadline=None)
@given(values=NUMBERS)
def test_aggregates_are_those_of_the_numbers(values: list[object]) -> None:
    world = World()
    for value in values:
        world.put(value=value)
    numbers = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    (row,) = world.ask("count(*) AS n, sum(/value) AS sum, avg(/value) AS avg, min(/value) AS min, max(/value) AS max")
    total = sum(numbers)
    exact = total if -(2**63) <= total < 2**63 else float(total)
    assert (row["n"], row["sum"]) == (len(values), exact if numbers else None)
    assert row["avg"] == (total / len(numbers) if numbers else None)
    ordered = sorted(values, key=_kind)
    assert (row["min"], row["max"]) == ((ordered[0], ordered[-1]) if values else (None, None))
    json.dumps(row)


def _kind(value: object) -> tuple[int, object]:
    return (0 if isinstance(value, bool) else 1 if isinstance(value, int) else 2), value


@pytest.mark.parametrize(
    ("select", "group_by", "words"),
    [
        ("bid", None, "select: 'bid' is none of: a JSON pointer such as /delay, property:NAME, topic, key, offset"),
        ("", None, "select: '' is none of"),
        ("/a,", None, "select: '' is none of"),
        ("/~2", None, "JSON pointer '~'"),
        ("/a, /b/a", None, "select: two columns have the name 'a'; say AS and another name"),
        ("median(/a)", None, r"select: 'median\(/a\)': there is count, sum, avg, min, max of one of"),
        ("sum(*)", None, r"select: sum\(\*\): only count takes all records"),
        ("sum(a)", None, "select: 'a' is none of"),
        ("sum(sum(/a))", None, "is none of"),
        ("/a, count(*)", None, "select: '/a' is neither in group_by nor in an aggregate"),
        ("/a, count(*)", "/b", "select: '/a' is neither in group_by"),
        ("count(*)", "b", "group_by: 'b' is none of"),
        ("count(*)", "count(*)", "group_by: 'count.*' is none of"),
        ("/" + "a" * 3000, None, "select: 3001 characters, 2,048 are allowed"),
        (",".join(f"/a{n}" for n in range(33)), None, "select: 33 terms, 32 are allowed"),
        ("/a" * 17, None, "levels are allowed"),
        ("/a AS " * 300, None, "select: "),
    ],
)  # fmt: skip
def test_a_bad_selection_is_one_clear_line(world: World, select: str, group_by: str | None, words: str) -> None:
    with pytest.raises(Refused, match=words) as caught:
        world.ask(select, group_by=group_by)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_groups_have_a_limit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(300):
        world.put(value=number)
    monkeypatch.setattr(groups_module, "GROUPS_MAX", 300)
    assert len(world.ask("/value", group_by="/value")) == 300
    world.put(value="one more")
    with pytest.raises(Refused, match=r"^group_by: more than 300 groups"):
        world.ask("/value", group_by="/value")
    assert not world.state.readings
    monkeypatch.setattr(groups_module, "GROUPS_BYTES_MAX", 100)
    with pytest.raises(Refused, match=r"^group_by: more than "):
        world.ask("/value", group_by="/value")


def test_the_order_of_groups_is_by_their_columns(world: World) -> None:
    with pytest.raises(Refused, match="order: '/carrier' is no column of the groups; there is carrier, n"):
        world.ask("/carrier, count(*) AS n", group_by="/carrier", order_by="/carrier", top=1)
    with pytest.raises(Refused, match="group_by: say select, too"):
        ask(StateRequest("t/#", group_by="/a"), world.registry, world.orders)
