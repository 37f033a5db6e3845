"""What selectors cost: each looks a record through once, and selectors of the same fields decode it once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.core.queries import ask
from tests.core.stage import Stage

from headway.core.message.keys import compile_key
from headway.core.message.record import Properties, Record
from headway.core.query.kept_order import KeptOrders
from headway.core.query.state_query import StateRequest
from headway.core.selector import selector as building
from headway.core.selector import syntax as like
from headway.core.selector import syntax as terms
from headway.core.selector.selector import compile_selector


def test_the_key_is_found_once_for_all_terms_that_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    key, found = compile_key("/k"), list[str]()
    find = type(key).find
    monkeypatch.setattr(type(key), "find", lambda self, topic, *rest: found.append(topic) or find(self, topic, *rest))
    wanted = compile_selector(" OR ".join(f"key = 'no {number}'" for number in range(300)) + " OR key = '7'")
    for number in range(3):
        assert wanted.matches(Record("t", b'{"k": %d}' % (6 + number)), key) == (number == 1)
    assert len(found) == 3


def test_the_first_of_user_properties_with_one_name_counts() -> None:
    record = Record("t", b"", Properties(user=(("n", "1"), ("m", "3"), ("n", "2"))))
    assert compile_selector("n = 1 AND m = 3").matches(record)
    assert not compile_selector("n = 2").matches(record)


def test_all_likes_of_a_selector_share_what_they_may_compare_in_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    searched, end = list[int](), like._Piece.end
    monkeypatch.setattr(
        like._Piece, "end", lambda self, text, *rest: searched.append(len(text)) or end(self, text, *rest)
    )
    many = compile_selector(" OR ".join(f"a LIKE '%x_{number}%'" for number in range(400)))
    assert not many.matches(Record("t", json.dumps({"a": "x" * 50_000}).encode()))
    assert 3 * sum(searched) <= terms.MAX_LIKE_WORK_PER_RECORD
    del searched[:]
    assert many.matches(Record("t", json.dumps({"a": "a short text: x-399"}).encode())), "of short texts all are tried"
    few = compile_selector(" OR ".join(f"a LIKE '%{number}%'" for number in range(90, 100)))
    assert few.matches(Record("t", json.dumps({"a": "x" * 200_000 + "99"}).encode())), "and of long ones some"


@pytest.mark.parametrize("pattern", ["{}z%", "%{}z%", "%a%A%b%B%a%{}z%", "%" + "a%" * 100 + "{}z%"])
def test_each_search_of_a_like_is_work(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tested, end = list[object](), like._Piece.end
    monkeypatch.setattr(like._Piece, "end", lambda self, *rest: tested.append(self) or end(self, *rest))
    text = " OR ".join(f"s LIKE '{pattern.format(number)}'" for number in range(80, 100))
    wanted = compile_selector(text)
    assert not wanted.matches(Record("t", json.dumps({"s": "aAbB" * 100}).encode()))
    assert wanted.cost >= (2 * 20 + len(tested)) // building.TERMS_A_UNIT


def test_selectors_of_one_field_decode_a_record_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = list[bytes]()
    make = building.field_reader

    def counted(names: Any) -> Any:
        read = make(names)
        return lambda payload: decoded.append(payload) or read(payload)

    monkeypatch.setattr(building, "field_reader", counted)
    building._readers.forget()
    building._compiled.forget()
    stage = Stage(memory="64MB")
    clients = [stage.client(f"c{number}", buffer=10**6) for number in range(50)]
    for number, client in enumerate(clients):
        client.subscribe("t", selector=f"n > {number}")
    publisher = stage.client("publisher")
    record = Record("t", b'{"n": 20}', sequence=1)
    stage.broker.publish(publisher.session, [record.run() for _ in range(3)], stage.now)
    stage.turn()
    assert len(decoded) == 3
    for number, client in enumerate(clients):
        assert len(client.seen) == (3 if number < 20 else 0)
    building._readers.forget()
    building._compiled.forget()


@pytest.mark.parametrize(
    ("selector", "payload"),
    [
        ("a = 1", b"[" * 100_000),
        (" OR ".join(f"a{number} = 1" for number in range(400)), b"{}"),
        ("a LIKE '%" + "_".join("x" * 100) + "%'", b"{}"),
    ],
)
def test_a_selector_of_many_terms_and_a_long_record_are_more_work(selector: str, payload: bytes) -> None:
    stage = Stage(memory="64MB")
    stage.client("c").subscribe("t", selector=selector)
    publisher = stage.client("publisher")
    runs = [Record("t", payload, sequence=1).run() for _ in range(400)]
    done = stage.broker.intake.publish_some(publisher.session, runs, stage.now, 1024)
    assert done.runs < 200, "the others wait for the next turn"
    simple = stage.client("d")
    simple.subscribe("u", selector="a = 1")
    runs = [Record("u", b"{}", sequence=1).run() for _ in range(400)]
    assert stage.broker.intake.publish_some(publisher.session, runs, stage.now, 1024).runs == 400


@pytest.mark.parametrize("order_by", ["offset", "/n DESC"])
def test_a_step_of_a_query_looks_at_fewer_records_with_a_selector_of_many_terms(order_by: str) -> None:
    stage = Stage('[[topic]]\nfilter = "t/#"\n', memory="64MB")
    publisher = stage.client("publisher")
    for number in range(300):
        publisher.publish(f"t/{number}", number, 1)
    steps = dict[int, int]()
    for terms_of_it in (1, 400):
        where = " AND ".join(f"no{number} IS NULL" for number in range(terms_of_it))
        request = StateRequest("t/#", where, order_by, top=1000)
        query = ask(request, stage.broker.registry, KeptOrders(stage.broker.registry))
        steps[terms_of_it] = sum(1 for _ in query.prepare())
        found = list(query.steps())
        steps[terms_of_it] += len(found) if order_by == "offset" else 0
        assert sum(map(len, found)) == 300
        query.close()
    assert steps[400] > 10 * steps[1]


SHAPES = {
    "chain": lambda n: " OR ".join(["a = 1"] * n),
    "parentheses": lambda n: "(" * n + "a = 1" + ")" * n,
    "parentheses-left": lambda n: "(" * n + "a" + " OR b)" * n,
    "parentheses-right": lambda n: "(b AND " * n + "a" + ")" * n,
    "list": lambda n: "a IN (" + ",".join(["-1"] * n) + ")",
    "likes": lambda n: " OR ".join(["a LIKE 'x%y_z%w'"] * n),
    "signs": lambda n: "a = " + "-" * 4 * n + "1",
    "negations": lambda n: "NOT " * n + "a",
    "path": lambda n: "a" + ".b" * n + " = 1",
    "unbalanced": lambda n: "(" * n + "a = 1",
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_compiling_takes_linear_time_and_no_stack(shape: Callable[[int], str]) -> None:
    """Counted in function calls, for a machine's time varies."""
    calls = dict[int, int]()
    for size in (200, 400, 800):
        deepest, depth, called, text = 0, 0, 0, shape(size)

        def note(_: object, event: str, __: object) -> None:
            nonlocal deepest, depth, called
            if event in ("call", "return"):
                depth += 1 if event == "call" else -1
                called += event == "call"
                deepest = max(deepest, depth)

        sys.setprofile(note)
        try:
            building._compile(text)
        finally:
            sys.setprofile(None)
        assert deepest < 40
        calls[size] = called
    assert calls[800] - calls[400] <= 2.2 * (calls[400] - calls[200]) + 50
