"""Projections: who asked for some fields gets these, from wherever a record comes, once for all of a lane."""

from __future__ import annotations

import json

import pytest
from bench.wires.packets import encode_publish
from tests.core.encodings import encodings
from tests.core.stage import STUCK, Client, Stage

from headway.core.base.errors import Refused
from headway.core.message.record import Properties

TOPIC = '[[topic]]\nfilter = "t/#"\nkey = "/k"\n'
ASKS = {"select": "/v, /a/b AS deep, property:p"}


def put(client: Client, *payloads: bytes, retain: bool = False, user: tuple[tuple[str, str], ...] = ()) -> None:
    data = b"".join(
        encode_publish("t/x", payload, retain=retain, properties=Properties(user=user)) for payload in payloads
    )
    runs = client.runs(data)
    client.stage.broker.publish(client.session, runs, client.stage.now)


def rows(client: Client) -> list[object]:
    return [json.loads(seen.payload) if seen.payload else seen.event for seen in client.seen]


def row(v: object, deep: object = None, p: object = None) -> dict[str, object]:
    return {"v": v, "deep": deep, "p": p}


def test_live_records_have_the_fields_and_their_keys() -> None:
    stage = Stage(TOPIC)
    watcher, plain = stage.consumer("watcher", "t/#", options=ASKS), stage.consumer("plain", "t/#")
    publisher = stage.client("publisher")
    first = stage.broker.registry.sequence + 1
    user = (("p", "q"), ("headway-key", "z"))
    put(publisher, b'{"k":"a","v":1,"a":{"b":[2]},"w":9}', b'{"k":"b"}', b"no JSON", user=user)
    put(publisher, b"", user=(("key", "a"),))
    stage.turn()
    assert rows(watcher) == [row(1, [2], "q"), row(None, None, "q"), row(None, None, "q"), "delete"]
    assert [seen.key for seen in watcher.seen] == ["a", "b", "z", "a"]
    assert plain.seen[0].payload == b'{"k":"a","v":1,"a":{"b":[2]},"w":9}'
    assert stage.broker.registry.sequence == first + 3


def test_the_state_is_projected_and_what_a_selector_needs_is_not_lost() -> None:
    stage = Stage(TOPIC)
    publisher = stage.client("publisher")
    put(publisher, b'{"k":"a","v":1,"w":60}', b'{"k":"b","v":2,"w":10}')
    asks = {"selector": "w > 50", "marks": "true", **ASKS}
    watcher = stage.consumer("watcher", "t/#", options=asks | {"snapshot": "true"})
    asker = stage.consumer("asker", "t/#", options={"query": "true", **ASKS})
    conflated = stage.consumer("conflated", "t/#", options={"selector": "w > 50", "conflate": "500ms", **ASKS})
    stage.turn()
    put(publisher, b'{"k":"b","v":3,"w":70}', b'{"k":"c","v":4,"w":7}')
    stage.run(2.0)
    assert rows(watcher) == ["snapshot_begin", row(1), "snapshot_end", row(3)]
    assert [seen.key for seen in watcher.seen if seen.payload] == ["a", "b"]
    assert rows(asker) == ["snapshot_begin", row(1), row(2), "snapshot_end"]
    assert rows(conflated) == [row(3)]


def test_one_who_is_behind_or_comes_back_or_loses_sight_gets_the_same_form() -> None:
    stage = Stage(TOPIC)
    asks = {"selector": "w > 50", "out_of_focus": "true", **ASKS}
    slow = stage.consumer("slow", "t/#", reads=STUCK, buffer=200, options=asks)
    publisher = stage.client("publisher")
    first = stage.broker.registry.sequence + 1
    put(publisher, *(b'{"k":"a","v":%d,"w":60}' % number for number in range(100)), b'{"k":"a","w":1}')
    stage.turn()
    back = stage.consumer("back", "t/#", options={"selector": "w > 50", "from": str(first + 97), **ASKS})
    slow.reads = float("inf")
    stage.run(1.0)
    assert rows(slow) == [*(row(number) for number in range(100)), "out_of_focus"]
    assert all(seen.key == "a" for seen in slow.seen)
    assert rows(back) == [] or rows(back) == [row(99)]


def test_retained_records_and_topics_without_key() -> None:
    stage = Stage("")
    publisher = stage.client("publisher")
    put(publisher, b'{"v":1}', retain=True)
    watcher = stage.consumer("watcher", "t/#", options={"select": "/v, topic, offset AS n"})
    put(publisher, b'{"v":2}')
    stage.turn()
    last = stage.broker.registry.sequence
    assert rows(watcher) == [{"v": 1, "topic": "t/x", "n": last - 1}, {"v": 2, "topic": "t/x", "n": last}]


def test_it_is_worked_out_once_for_all_of_a_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = encodings(monkeypatch)
    counts = []
    for consumers in (1, 50):
        stage = Stage(TOPIC)
        watchers = [stage.consumer(f"watcher {number}", "t/#", options=ASKS) for number in range(consumers)]
        calls.clear()
        put(stage.client("publisher"), b'{"k":"a","v":1}', b'{"k":"a","v":2}')
        counts.append(len(calls))
        stage.turn()
        assert all(rows(watcher) == [row(1), row(2)] for watcher in watchers)
    assert counts[0] == counts[1] == 2


def test_a_subscription_that_takes_the_place_of_another_is_not_projected_twice() -> None:
    stage = Stage(TOPIC)
    watcher = stage.consumer("watcher", "t/#", reads=STUCK, buffer=100, options=ASKS)
    put(stage.client("publisher"), *(b'{"k":"a","v":%d}' % number for number in range(20)))
    stage.turn()
    watcher.subscribe("t/#", select="/k")
    watcher.reads = float("inf")
    put(stage.client("other"), b'{"k":"z"}')
    stage.run(1.0)
    assert rows(watcher)[-1] == {"k": "z"}
    assert {"k": None} not in rows(watcher)
    assert sum(watcher.gap_told.values()) + len(watcher.seen) == 21


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"select": "v"}, "JSON pointer"),
        ({"select": "/v, /v"}, "two columns"),
        ({"select": "/v", "group_by": "/k"}, "neither in group_by"),
        ({"select": "/v", "order_by": "/v", "top": "3"}, "whole records"),
        ({"selekt": "/v"}, "select"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(options: dict[str, str], text: str) -> None:
    client = Stage(TOPIC).client("watcher")
    with pytest.raises(Refused, match=text):
        client.subscribe("t/#", **options)
    assert not client.session.subscriptions


def test_sessions_that_outlive_their_connection_and_groups_are_refused() -> None:
    stage = Stage(TOPIC)
    with pytest.raises(Refused, match="outlive"):
        stage.consumer("durable", "t/#", options=ASKS, expiry_s=60.0)
    with pytest.raises(Refused, match="shared"):
        stage.client("member").subscribe("$share/g/t/#", **ASKS)


def test_a_projection_counts_to_its_client() -> None:
    stage = Stage(TOPIC)
    plain, picky = stage.consumer("plain", "t/#"), stage.consumer("picky", "t/#", options=ASKS)
    assert picky.session.tab.bytes > plain.session.tab.bytes + 8000
