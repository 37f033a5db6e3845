"""Kept aggregates: rows of figures that are those of a query at any time, whatever comes and goes."""

from __future__ import annotations

import itertools
import json
import random
import re
from typing import Any

import pytest
from tests.core.queries import ask
from tests.core.stage import Client, Stage
from tests.core.test_live_pages import TOPIC, put, told

from headway.core.live.kept_rows import POOL_SHARE, KeptGreatest, KeptLeast, key_of_row
from headway.core.message.record import Properties, Record
from headway.core.query import RowsQuery, StateRequest
from headway.core.query.state_query import Average, Sum

SELECT = "/g, count(*) AS n, count(/v) AS with_v, sum(/v), avg(/v), min(/v), max(/v)"


def asked(stage: Stage, **more: Any) -> list[dict[str, object]]:
    """Returns the rows that a query has."""
    query = ask(StateRequest("t/#", **more), stage.broker.registry, stage.broker.orders, stage.now)
    for _ in query.prepare():
        pass
    assert isinstance(query, RowsQuery)
    rows = [row for some in query.rows() for row in some]
    query.close()
    return json.loads(json.dumps(rows))  # type: ignore[no-any-return]


class Rows:
    """What a subscriber knows of the groups."""

    def __init__(self) -> None:
        self.rows: dict[str | None, dict[str, object]] = {}

    def read(self, client: Client) -> None:
        for seen in client.seen:
            if seen.event == "snapshot_begin":
                self.rows = {}
            elif seen.event == "out_of_focus":
                self.rows.pop(seen.key, None)
            elif seen.event is None:
                self.rows[seen.key] = json.loads(seen.payload)
        client.seen.clear()


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_the_rows_are_those_of_a_query(seed: int) -> None:
    rng = random.Random(seed)
    stage = Stage(TOPIC, memory=rng.choice(["64MB", "300KB"]))
    publish = stage.broker.publish
    values = [None, True, "text", 3, 2.5, 0.1, 1e308, -1e308, 10**30, 1e-300, "x" * 2000, -7, 2**62, [1]]
    grouped = rng.random() < 0.8
    select = SELECT if grouped else SELECT.removeprefix("/g, ")
    terms = {"select": select} | ({"group_by": "/g"} if grouped else {})
    above = {"selector": "v > 0"} if rng.random() < 0.3 else {}
    watchers: list[tuple[Client, Rows]] = []
    for step in range(rng.choice([5, 40])):
        if step in (0, 3):
            reads = rng.choice([float("inf"), 500.0])
            client = stage.client(f"watcher {step}", reads=reads)
            client.subscribe("t/#", **terms, **above)
            watchers.append((client, Rows()))
        for _ in range(rng.choice([1, 5, 50])):
            key, group = f"k{rng.randrange(60)}", rng.choice(["a", "b", 7, "7", None, True, "c d"])
            payload = json.dumps({"k": key, "g": group, "v": rng.choice(values)}).encode()
            delete = rng.random() < 0.2
            record = Record("t/x", b"" if delete else payload, Properties(user=(("key", key),) if delete else ()))
            publish(None, [record.run()], stage.now)
        stage.turn()
        for client, rows in watchers:
            rows.read(client)
            if client.reads == float("inf"):
                same(rows, asked(stage, **terms, **above))
    for client, _ in watchers:
        client.reads = float("inf")
    stage.run(1.0)
    for client, rows in watchers:
        rows.read(client)
        same(rows, asked(stage, **terms, **above))


def same(rows: Rows, wanted: list[dict[str, object]]) -> None:
    def texts(found: list[dict[str, object]]) -> list[str]:
        texts = [json.dumps(row, sort_keys=True) for row in found]
        return sorted(re.sub("-?Infinity|NaN", "null", text) for text in texts)

    assert texts(wanted) == texts(list(rows.rows.values()))


def test_a_row_comes_changes_and_goes_with_its_records() -> None:
    stage = Stage(TOPIC)
    put(stage, ("a", 1), ("b", 1), ("c", 2))
    watcher = stage.consumer("watcher", "t/#", options={"select": "/v AS k, count(*) AS v", "group_by": "/v"})
    stage.turn()
    assert told(watcher) == [("snapshot_begin", None), (1, 2), (2, 1), ("snapshot_end", None)]
    put(stage, ("c", 2))
    assert told(watcher) == []
    put(stage, ("c", 1), ("d", 3))
    assert sorted(told(watcher), key=str) == [("2", "no_records"), (1, 3), (3, 1)]
    put(stage, ("d", None))
    assert told(watcher) == [("3", "no_records")]


def test_what_changes_often_is_told_at_most_each_interval() -> None:
    stage = Stage(TOPIC)
    watcher = stage.consumer("watcher", "t/#", options={"select": "sum(/v) AS v, count(*) AS k", "conflate": "1s"})
    stage.turn()
    assert told(watcher) == [("snapshot_begin", None), (0, None), ("snapshot_end", None)]
    seen = 0
    for number in range(40):
        put(stage, (f"k{number}", 1))
        stage.run(0.25)
        seen += len(watcher.seen)
        last = told(watcher) or [(0, 0)]
    assert 9 <= seen <= 12
    stage.run(2.0)
    assert [*last, *told(watcher)][-1] == (40, 40)


def test_many_who_wait_for_the_first_look_begin_some_at_a_time_and_none_misses_anything() -> None:
    stage = Stage(TOPIC, memory="640MB")
    put(stage, *((f"k{number}", number % 5) for number in range(1000)))
    watchers = [stage.client(f"watcher {number}") for number in range(700)]
    for watcher in watchers:
        watcher.subscribe("t/#", select="/v AS v, count(*) AS k", group_by="/v", offsets="true")
    live = stage.broker._turn._live
    begun, turns = [0], 0
    while begun[-1] < len(watchers):
        record = Record("t/x", json.dumps({"k": f"new {turns}", "v": turns % 7}).encode())
        stage.broker.publish(None, [record.run()], stage.now)
        stage.broker.flush(stage.now)
        for watcher in watchers:
            watcher.read(float("inf"))
        begun.append(sum(bool(watcher.seen) for watcher in watchers))
        turns += 1
        assert turns < 100
    assert max(after - before for before, after in itertools.pairwise(begun)) < 300
    stage.turn()
    assert not live.has_work
    wanted = asked(stage, select="/v AS v, count(*) AS k", group_by="/v")
    for watcher in watchers:
        marks = [seen.event for seen in watcher.seen if seen.event]
        assert marks == ["snapshot_begin", "snapshot_end"]
        end = next(at for at, seen in enumerate(watcher.seen) if seen.event == "snapshot_end")
        as_of = int(watcher.seen[end].figures["headway-offset"])
        assert all(seen.offset is not None and seen.offset > as_of for seen in watcher.seen[end + 1 :]), "none twice"
        rows = Rows()
        rows.read(watcher)
        same(rows, wanted)
        (subscription,) = watcher.session.subscriptions.values()
        assert subscription in subscription.feed.waiting


def test_groups_without_end_are_given_up_and_their_subscribers_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(TOPIC)
    monkeypatch.setattr("headway.core.query.state_query.GROUPS_MAX", 10)
    watcher = stage.consumer("watcher", "t/#", options={"select": "/v, count(*)", "group_by": "/v"})
    put(stage, *((f"k{number}", number) for number in range(10)))
    assert watcher.goodbye is None
    put(stage, ("one more", 10))
    assert "more than 10 groups" in str(watcher.goodbye)
    (state,) = stage.broker.registry.router.states
    assert not state.readings


def test_sums_are_exact_whatever_comes_and_goes() -> None:
    for kind in (Sum, Average):
        some = kind()
        for value in (1e300, 0.1, 0.2, -1e-300, 3):
            some.add(value)
        for value in (1e300, 3):
            some.remove(value)
        kept = kind()
        for value in (-1e-300, 0.2, 0.1):
            kept.add(value)
        assert some.value == kept.value
    huge = Sum()
    huge.add(float("inf"))
    huge.add(1)
    assert huge.value == float("inf")
    huge.remove(float("inf"))
    assert huge.value == 1


def test_extremes_survive_what_is_taken_out() -> None:
    rng = random.Random(1)
    least, greatest, there = KeptLeast(), KeptGreatest(), list[int]()
    size = 0
    for _ in range(5000):
        if there and rng.random() < 0.5:
            gone = there.pop(rng.randrange(len(there)))
            size += least.remove(gone) + greatest.remove(gone)
        else:
            there.append(rng.randrange(50))
            size += least.add(there[-1]) + greatest.add(there[-1])
        assert (least.value, greatest.value) == ((min(there), max(there)) if there else (None, None))
    assert len(least._heap) < 300
    for value in there:
        size += least.remove(value) + greatest.remove(value)
    assert size == 0


def test_each_group_has_a_key_of_its_own() -> None:
    values: list[object] = ["7", 7, None, "null", True, "true", "", '"7"', "a", "[1]", "-", 7.5, '"a"']
    keys = [key_of_row([value]) for value in values]
    assert len(set(keys)) == len(values)
    assert key_of_row(["UA"]) == "UA"
    assert key_of_row([7]) == "7"
    assert key_of_row(["UA", 7]) == '["UA",7]'
    assert key_of_row([]) is None


def test_all_aggregates_together_keep_no_more_than_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(TOPIC)
    limit = int(stage.broker.registry.pool_of("mqtt").clients_limit * POOL_SHARE)
    one = stage.consumer("one", "t/#", options={"select": "/v, count(*)", "group_by": "/v"})
    put(stage, *((f"k{number}", number) for number in range(10)))
    pool = one.session.pool
    stage.checks = False  # of what is counted
    monkeypatch.setattr(pool, "groups_bytes", limit - 100 + pool.groups_bytes)
    other = stage.consumer("other", "t/#", options={"select": "/v AS w, count(*)", "group_by": "/v"})
    stage.run(1.0)
    assert "all aggregates together take up more than" in str(other.goodbye)
    assert one.goodbye is None
