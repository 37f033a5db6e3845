"""Deltas: only what has changed, once for all of a lane, and never for one that does not have the record before."""

from __future__ import annotations

import json
from math import inf
from typing import Any

import pytest
from bench.wires.packets import encode_publish
from hypothesis import example, given
from tests.core.encodings import encodings
from tests.core.stage import STUCK, Client, Stage
from tests.core.test_merging import OBJECTS
from tests.sim.images.truth import merge

from headway.core.base.errors import Refused
from headway.core.message.keys import difference
from headway.core.message.record import Properties

TOPIC = '[[topic]]\nfilter = "t/#"\nkey = "/k"\n'
ASKS = {"delta": "true", "offsets": "true"}
PAD = "x" * 100


def put(client: Client, *payloads: bytes | dict[str, Any], user: tuple[tuple[str, str], ...] = (),
        expires_s: float = inf,
        retain: bool = False) -> None:
    texts = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in payloads]
    data = b"".join(encode_publish("t/x", text, properties=Properties(user=user), retain=retain) for text in texts)
    runs = client.runs(data)
    for run in runs:
        run.expires_s = expires_s
    client.stage.broker.publish(client.session, runs, client.stage.now)


def a(v: int, **more: Any) -> dict[str, Any]:
    return {"k": "a", "v": v, "pad": PAD} | more


def told(client: Client) -> list[Any]:
    """What was read: the patch of a delta, ``whole`` and the value, or another event."""
    found: list[Any] = []
    for seen in client.seen:
        if seen.event == "delta":
            found.append(json.loads(seen.payload))
        elif seen.event is None and seen.payload[:1] == b"{":
            found.append(("whole", json.loads(seen.payload).get("v")))
        else:
            found.append(seen.event or seen.payload)
    return found


def test_a_record_whose_key_is_known_has_only_what_has_changed() -> None:
    stage = Stage(TOPIC)
    watcher, plain = stage.consumer("watcher", "t/#", options=ASKS), stage.consumer("plain", "t/#")
    put(stage.client("publisher"), a(1), a(2), a(3, w={"x": 1}), a(3), user=(("desk", "7"), ("headway-key", "z")))
    stage.turn()
    assert told(watcher) == [("whole", 1), {"k": "a", "v": 2}, {"k": "a", "v": 3, "w": {"x": 1}}, {"k": "a", "w": None}]
    assert [seen.key for seen in watcher.seen[1:]] == ["a"] * 3
    assert watcher.seen[1].properties.user == (("desk", "7"),)
    assert [json.loads(seen.payload)["v"] for seen in plain.seen] == [1, 2, 3, 3]


def test_who_joins_gets_each_key_whole_first_and_so_do_the_others() -> None:
    stage = Stage(TOPIC)
    first, publisher = stage.consumer("first", "t/#", options=ASKS), stage.client("publisher")
    put(publisher, a(1), a(2))
    second = stage.consumer("second", "t/#", options=ASKS)
    third = stage.consumer("third", "t/#", options=ASKS | {"snapshot": "true"})
    put(publisher, a(3), a(4))
    stage.turn()
    assert told(first) == [("whole", 1), {"k": "a", "v": 2}, ("whole", 3), {"k": "a", "v": 4}]
    assert told(second) == [("whole", 3), {"k": "a", "v": 4}]
    assert told(third)[-2:] == [("whole", 3), {"k": "a", "v": 4}]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"no JSON " + PAD.encode(), b'{"k":"a","pad":"' + PAD.encode() + b'"}'),
        (b'{"k":"a","v":1,"pad":"' + PAD.encode() + b'"}', b'{"k":"a","v":null,"pad":"' + PAD.encode() + b'"}'),
        (b'{"k":"a","pad":"' + PAD.encode() + b'"}', b'{"k":"a","v":{"x":null},"pad":"' + PAD.encode() + b'"}'),
        (b'{"k":"a","v":1}', b'{"k":"a","z":2}'),
        (b'{"k":"a","v":[1],"pad":"' + PAD.encode() + b'"}', b"[1, 2, 3]"),
    ],
)
def test_what_no_patch_can_say_is_whole(before: bytes, after: bytes) -> None:
    stage = Stage(TOPIC)
    watcher = stage.consumer("watcher", "t/#", options=ASKS)
    put(stage.client("publisher"), before, after)
    stage.turn()
    assert [(seen.event, seen.payload) for seen in watcher.seen] == [(None, before), (None, after)]


def test_after_a_delete_and_after_out_of_focus_it_is_whole() -> None:
    stage = Stage(TOPIC)
    options = ASKS | {"selector": "v > 5", "out_of_focus": "true"}
    watcher = stage.consumer("watcher", "t/#", options=options)
    publisher = stage.client("publisher")
    put(publisher, a(6), a(7), a(1), a(8), a(9))
    put(publisher, b"", user=(("key", "a"),))
    put(publisher, a(7))
    put(publisher, a(8), user=(("delete", "1"),))
    put(publisher, a(9))
    stage.turn()
    assert told(watcher) == [
        ("whole", 6), {"k": "a", "v": 7}, "out_of_focus", ("whole", 8), {"k": "a", "v": 9}, "out_of_focus",
        ("whole", 7), "delete", ("whole", 9),
    ]  # fmt: skip


def test_a_selector_without_out_of_focus_compares_with_what_the_lane_has() -> None:
    stage = Stage(TOPIC)
    watcher = stage.consumer("watcher", "t/#", options=ASKS | {"selector": "v > 5"})
    put(stage.client("publisher"), a(6), a(1), a(7), a(8))
    stage.turn()
    assert told(watcher) == [("whole", 6), ("whole", 7), {"k": "a", "v": 8}]


def test_one_whose_record_expired_unsent_gets_the_latest_whole() -> None:
    """The delta that waits behind it is of what it never had."""
    stage = Stage(TOPIC)
    slow = stage.consumer("slow", "t/#", reads=STUCK, buffer=100, options=ASKS)
    fast, publisher = stage.consumer("fast", "t/#", options=ASKS), stage.client("publisher")
    put(publisher, {"k": "z", "pad": PAD * 3})
    stage.turn()
    put(publisher, a(1), expires_s=stage.now + 1.0)
    put(publisher, a(2), a(3))
    stage.run(2.0)
    slow.reads = float("inf")
    stage.run(1.0)
    put(publisher, a(4), a(5))
    stage.run(1.0)
    assert told(fast)[1:] == [("whole", 1), {"k": "a", "v": 2}, {"k": "a", "v": 3}, ("whole", 4), {"k": "a", "v": 5}]
    assert told(slow)[1:] == [("whole", 3), ("whole", 4), {"k": "a", "v": 5}]


def test_one_who_is_behind_and_misses_nothing_gets_deltas() -> None:
    stage = Stage(TOPIC)
    slow = stage.consumer("slow", "t/#", reads=STUCK, buffer=100, options=ASKS)
    put(stage.client("publisher"), *(a(number) for number in range(50)))
    stage.run(1.0)
    slow.reads = float("inf")
    stage.run(1.0)
    assert told(slow) == [("whole", 0), *({"k": "a", "v": number} for number in range(1, 50))]


def test_who_comes_back_gets_what_has_changed_whole() -> None:
    stage = Stage(TOPIC)
    keeper, publisher = stage.consumer("keeper", "t/#", options=ASKS), stage.client("publisher")
    put(publisher, a(1), a(2), {"k": "b", "v": 1, "pad": PAD})
    back = stage.consumer("back", "t/#", options=ASKS | {"from": str(stage.broker.registry.sequence - 2)})
    stage.turn()
    put(publisher, a(3))
    stage.turn()
    assert told(back) == [("whole", 2), ("whole", 1), ("whole", 3)]
    assert back.gap_told == {}
    assert len(keeper.seen) == 4


def test_retained_records_are_left_to_the_snapshot() -> None:
    stage = Stage(TOPIC)
    publisher = stage.client("publisher")
    put(publisher, a(1), retain=True)
    put(publisher, a(2))
    watcher = stage.consumer("watcher", "t/#", options=ASKS | {"snapshot": "true"})
    put(publisher, a(3), a(4))
    stage.turn()
    assert told(watcher)[-2:] == [("whole", 3), {"k": "a", "v": 4}]
    assert ("whole", 1) not in told(watcher)


def test_a_publisher_cannot_pass_a_record_off_as_a_delta() -> None:
    stage = Stage(TOPIC)
    watcher = stage.consumer("watcher", "t/#", options=ASKS)
    put(stage.client("publisher"), a(1), user=(("headway-event", "delta"),))
    stage.turn()
    assert told(watcher) == [("whole", 1)]


def test_a_projection_and_deltas_go_together() -> None:
    stage = Stage(TOPIC)
    watcher = stage.consumer("watcher", "t/#", options=ASKS | {"select": "/v, /w, /pad"})
    put(stage.client("publisher"), a(1, w=1), a(2, w=1, z=3), a(3))
    stage.turn()
    assert told(watcher) == [("whole", 1), {"v": 2}, ("whole", 3)]  # a column that becomes null is no patch


def test_it_is_worked_out_once_for_all_of_a_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = encodings(monkeypatch)
    counts = []
    for consumers in (1, 50):
        stage = Stage(TOPIC)
        watchers = [stage.consumer(f"watcher {number}", "t/#", options=ASKS) for number in range(consumers)]
        calls.clear()
        put(stage.client("publisher"), a(1), a(2))
        counts.append(len(calls))
        stage.turn()
        assert all(told(watcher) == [("whole", 1), {"k": "a", "v": 2}] for watcher in watchers)
    assert counts[0] == counts[1] == 2


@pytest.mark.parametrize(
    ("filter", "options", "text"),
    [
        ("u/#", {}, "no keyed"),
        ("t/#", {"top": "3"}, "live pages"),
        ("t/#", {"select": "count(*)"}, "aggregates"),
        ("t/#", {"from": "-5m"}, "nothing of|an offset, and no time"),
        ("$share/g/t/#", {}, "shared"),
        ("t/#", {"deltas": "true"}, "did you mean delta"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(filter: str, options: dict[str, str], text: str) -> None:
    client = Stage(TOPIC).client("watcher")
    with pytest.raises(Refused, match=text):
        client.subscribe(filter, **(ASKS | options))
    assert not client.session.subscriptions


@given(OBJECTS, OBJECTS)
@example({"": {"a": None}}, {"": {}})
def test_a_difference_makes_the_one_of_the_other(before: Any, after: Any) -> None:
    patch = difference(json.dumps(before).encode(), json.dumps(after).encode())
    if patch is None:
        assert "null" in json.dumps(after)
    else:
        assert json.dumps(merge(before, json.loads(patch)), sort_keys=True) == json.dumps(after, sort_keys=True)
