"""Out of focus: who is told that a key no longer matches, once for all of a lane, and who cannot be."""

from __future__ import annotations

import json

import pytest
from bench.wires.packets import encode_publish
from tests.core.encodings import encodings
from tests.core.stage import STUCK, Client, Stage

from headway.core.base.errors import Refused
from headway.core.delivery import rendering as batch
from headway.core.message.record import Properties

TOPIC = '[[topic]]\nfilter = "t/#"\nkey = "/k"\n'
ASKS = {"selector": "v > 50", "out_of_focus": "true", "offsets": "true"}


def put(client: Client, *values: tuple[str, int | None]) -> None:
    """Publishes records in one go; None deletes a key."""
    data = b""
    for key, value in values:
        payload = b"" if value is None else json.dumps({"k": key, "v": value}).encode()
        user = (("key", key),) if value is None else ()
        data += encode_publish("t/x", payload, properties=Properties(user=user))
    runs = client.runs(data)
    client.stage.broker.publish(client.session, runs, client.stage.now)


def told(client: Client) -> list[tuple[int | None, str | None, str | None, str | None]]:
    return [(seen.offset, seen.event, seen.key, seen.figures.get("headway-why")) for seen in client.seen]


def test_a_key_that_leaves_is_told_once_and_why() -> None:
    stage = Stage(TOPIC)
    watcher = stage.consumer("watcher", "t/#", options=ASKS)
    other = stage.consumer("other", "t/#", options={"selector": "v > 50", "offsets": "true"})
    publisher = stage.client("publisher")
    first = stage.broker.registry.sequence + 1
    put(publisher, ("a", 60), ("b", 10), ("a", 40), ("a", 30), ("a", 70), ("a", 80), ("c", 90))
    put(publisher, ("a", None), ("a", None), ("b", None), ("c", 50), ("c", 90))
    stage.turn()
    record, left = (None, None, None), ("out_of_focus", "a", "changed")
    assert told(watcher) == [
        (first, *record), (first + 2, *left), (first + 4, *record), (first + 5, *record), (first + 6, *record),
        (first + 7, "out_of_focus", "a", "deleted"), (first + 10, "out_of_focus", "c", "changed"),
        (first + 11, *record),
    ]  # fmt: skip
    assert [seen.payload for seen in watcher.seen if seen.event] == [b""] * 3
    assert [one for one in told(watcher) if one[1] is None] == told(other)


def test_it_is_worked_out_once_for_all_of_a_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = encodings(monkeypatch)
    counts = []
    for consumers in (1, 50):
        stage = Stage(TOPIC)
        watchers = [stage.consumer(f"watcher {number}", "t/#", options=ASKS) for number in range(consumers)]
        publisher = stage.client("publisher")
        calls.clear()
        put(publisher, ("a", 60), ("a", 40))
        counts.append(len(calls))
        stage.turn()
        assert all(len(watcher.seen) == 2 for watcher in watchers)
    assert counts[0] == counts[1]


def test_what_came_before_a_subscription_counts() -> None:
    stage = Stage(TOPIC)
    publisher = stage.client("publisher")
    put(publisher, ("a", 60), ("b", 10))
    watcher = stage.consumer("watcher", "t/#", options=ASKS | {"snapshot": "true"})
    stage.turn()
    put(publisher, ("a", 5), ("b", 5))
    stage.turn()
    assert [seen.event for seen in watcher.seen] == [None, "out_of_focus"]


@pytest.mark.parametrize(
    ("filter", "expiry_s", "error"),
    [("other/#", 0, "no keyed"), ("$share/g/t/#", 0, "shared"), ("t/#", 60, "outlive"), ("#", 0, "no keyed")],
)
def test_who_cannot_be_told(filter: str, expiry_s: float, error: str) -> None:
    client = Stage(TOPIC).client("a", expiry_s=expiry_s)
    with pytest.raises(Refused, match=error):
        client.subscribe(filter, **ASKS)


def test_the_lane_goes_with_the_last_who_asks() -> None:
    stage = Stage(TOPIC)
    feeds = len(stage.broker.registry.router.feeds)
    for name in "ab":
        stage.consumer(name, "t/#", options=ASKS)
    stage.consumer("c", "t/#", options={"selector": "v > 50", "offsets": "true"})
    assert len(stage.broker.registry.router.feeds) == feeds + 2
    for name in "abc":
        stage.clients[name].leave()
    stage.run(1.0)
    assert len(stage.broker.registry.router.feeds) == feeds


def test_a_loss_is_told_although_the_key_changes_before_the_pass_comes_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass skips the key, as its record is behind the pass; the lane knows only that it did not match before."""
    monkeypatch.setattr(batch, "BATCH_BYTES", 1)
    stage = Stage(TOPIC)
    publisher = stage.client("publisher")
    put(publisher, ("a", 60))
    seen = stage.broker.registry.sequence
    put(publisher, ("b", 90), ("a", 40))
    stage.turn()
    slow = stage.consumer("slow", "t/#", options=ASKS | {"from_": str(seen)}, reads=STUCK, buffer=10)
    stage.turn()
    put(publisher, ("a", 30))
    slow.reads, slow.outlet.capacity = float("inf"), 10_000
    stage.broker.writable(slow.session, stage.now)
    stage.run(0.5)
    assert [(one.offset, one.event) for one in slow.seen] == [(seen + 1, None), (seen + 3, "out_of_focus")]
