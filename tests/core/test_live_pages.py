"""Live pages: the first page between marks, then what enters it, changes in it and leaves it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from tests.core.stage import STUCK, Client, Stage
from tests.core.test_idle import steps

from headway.core.base.errors import Refused
from headway.core.live import live_query
from headway.core.live import live_query as head
from headway.core.live.ordered_pages import Page
from headway.core.message.record import EncodedRun, Properties, Record, Run
from headway.core.query.kept_order import FOLLOWED_MAX, FOLLOWED_PER_CLIENT
from headway.wire.mqtt.dialect import MqttDialect

TOPIC = '[[topic]]\nfilter = "t/#"\nkey = "/k"\n'
PAGE = {"order_by": "/v DESC", "top": "3"}


def put(stage: Stage, *values: tuple[str, object]) -> None:
    """Publishes records in one turn; None deletes a key."""
    for key, value in values:
        payload = b"" if value is None else json.dumps({"k": key, "v": value}).encode()
        user = (("key", key),) if value is None else ()
        run: Run = Record("t/x", payload, Properties(user=user)).run()
        stage.broker.publish(None, [run], stage.now)
    stage.turn()


def told(client: Client) -> list[tuple[str, str | None]]:
    """Returns what a client was told since the last time: keys with values, or with why they left; marks."""
    found: list[tuple[str, str | None]] = []
    for seen in client.seen:
        if seen.event == "out_of_focus":
            found.append((str(seen.key), seen.figures["headway-why"]))
        elif seen.event:
            found.append((seen.event, None))
        else:
            record = json.loads(seen.payload)
            found.append((record["k"], record["v"]))
    client.seen.clear()
    return found


def test_the_first_page_comes_in_order_between_marks_and_then_what_changes_it() -> None:
    stage = Stage(TOPIC)
    put(stage, ("a", 1), ("b", 5), ("c", 3), ("d", 4), ("e", 2))
    watcher = stage.consumer("watcher", "t/#", options=PAGE)
    stage.turn()
    assert told(watcher) == [("snapshot_begin", None), ("b", 5), ("d", 4), ("c", 3), ("snapshot_end", None)]
    put(stage, ("a", 0), ("e", 1))
    assert told(watcher) == []
    put(stage, ("a", 6))
    assert sorted(told(watcher), key=str) == [("a", 6), ("c", "left_page")]
    put(stage, ("a", 7))
    assert told(watcher) == [("a", 7)]
    put(stage, ("b", None))
    assert sorted(told(watcher), key=str) == [("b", "deleted"), ("c", 3)]


class Image:
    """What a subscriber knows from what it was given: nothing else."""

    def __init__(self) -> None:
        self.records: dict[str, dict[str, object]] = {}
        self.anew: dict[str, dict[str, object]] | None = None
        """What came since a begin mark."""
        self.gaps = 0

    def read(self, client: Client) -> None:
        for seen in client.seen:
            self.gaps += seen.gap is not None and seen.gap.reason != "conflated"
            if seen.event == "snapshot_begin":
                self.anew = {}
                continue
            if seen.event == "snapshot_end":
                assert self.anew is not None
                self.records, self.anew = self.anew, None
                continue
            into = self.records if self.anew is None else self.anew
            if seen.event == "out_of_focus":
                into.pop(str(seen.key), None)  # one that is behind may hear of a key that it never had
            else:
                record = json.loads(seen.payload)
                into[record["k"]] = record
        client.seen.clear()


def truth(stage: Stage, start: int, stop: int, *, down: bool, above: float | None = None) -> dict[str, object]:
    """The page, by looking at every record of the state."""
    (state,) = (state for state in stage.broker.registry.router.states if state.declared)
    found, entry = [], state.oldest
    while entry is not state.ends:
        if not entry.deleted:
            found.append(json.loads(entry.record.payload))
        entry = entry.after
    found = [record for record in found if above is None or record["v"] > above]
    found.sort(key=lambda record: -record["v"] if down else record["v"])
    return {record["k"]: record for record in found[start:stop]}


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_each_image_is_its_page(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(live_query, "DELETES_MAX", rng.choice((2, 256)))
    monkeypatch.setattr(head, "SPARE_RECORDS", rng.choice((1, 64)))
    memory = rng.choice(["64MB", "64MB", "400KB"])
    stage = Stage(TOPIC, memory=memory)
    watchers, keys = [], rng.choice([5, 30, 300])
    put(stage, *((f"k{number}", rng.randrange(20)) for number in range(keys // 2)))
    for number in range(rng.choice([1, 3, 8])):
        start, down = rng.choice([0, 0, 1, 10, 80]), rng.random() < 0.5
        top, above = rng.choice([0, 1, 5, 20, 200]), rng.choice([None, None, 5.0])
        options = {"order_by": "/v DESC" if down else "/v", "top": str(top)}
        options |= {"skip": str(start)} if start else {}
        options |= {"selector": f"v > {above}"} if above is not None else {}
        conflated = rng.random() < 0.2
        options |= {"conflate": "1s"} if conflated else {}
        reads = rng.choice([float("inf"), float("inf"), 400.0])
        client = stage.client(f"watcher {number}", reads=reads, acks=True)
        client.subscribe("t/#", rng.choice([0, 0, 1]), **options)
        watchers.append((client, Image(), start, start + top, down, above, conflated))
    for _ in range(rng.choice([3, 30])):
        some = []
        for _ in range(rng.choice([1, 1, 10, 100])):
            value = None if rng.random() < 0.15 else rng.randrange(40)
            some.append((f"k{rng.randrange(keys)}", value))
        put(stage, *some)
        for client, image, start, stop, down, above, conflated in watchers:
            image.read(client)
            if client.reads == float("inf") and not conflated:  # it is always current
                assert image.records == truth(stage, start, stop, down=down, above=above)
    for client, *_ in watchers:
        client.reads = float("inf")
    stage.run(3.0)
    for client, image, start, stop, down, above, _ in watchers:
        image.read(client)
        assert client.connected
        assert not image.gaps
        wanted = truth(stage, start, stop, down=down, above=above)
        assert image.records == wanted, (start, stop, down, above)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns the list to which each encoding of a record adds its sequence."""
    calls: list[int] = []
    encode, encode_record = MqttDialect.encode, MqttDialect.encode_record

    def one(self: MqttDialect, run: Run, first: int) -> EncodedRun:
        calls.append(first)
        return encode(self, run, first)

    def single(self: MqttDialect, record: Record, delivery_id: int, **more: Any) -> bytes:
        calls.append(record.sequence)
        return encode_record(self, record, delivery_id, **more)

    monkeypatch.setattr(MqttDialect, "encode", one)
    monkeypatch.setattr(MqttDialect, "encode_record", single)
    return calls


def test_subscribers_of_the_same_page_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, counts = counted(monkeypatch), []
    for consumers in (1, 100):
        stage = Stage(TOPIC)
        put(stage, *((f"k{number}", number) for number in range(20)))
        watchers = [stage.consumer(f"watcher {number}", "t/#", options=PAGE) for number in range(consumers)]
        stage.turn()
        calls.clear()
        put(stage, ("k3", 50), ("k4", 51))
        counts.append(len(calls))
        assert all(len(told(watcher)) == 5 + 4 for watcher in watchers)
    assert counts == [4, 4]


def test_a_page_costs_nothing_while_what_changes_is_outside_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    touch = Page.touch

    def noted(self: Page, keys: Any) -> None:
        looked.append(self.start)
        touch(self, keys)

    stage = Stage(TOPIC)
    put(stage, *((f"k{number:04}", number) for number in range(2000)))
    for start in range(0, 2000, 20):
        stage.consumer(f"watcher {start}", "t/#", options={"order_by": "/v", "top": "20", "skip": str(start)})
    stage.turn()
    monkeypatch.setattr(Page, "touch", noted)
    put(stage, ("k0105", 105.5))
    assert looked == [100]
    put(stage, ("k0115", 121.5))
    assert looked == [100, 100, 120]
    put(stage, ("k1999", 1999.5))
    assert looked == [100, 100, 120, 1980]


def test_a_page_goes_with_the_last_who_wants_it() -> None:
    stage = Stage(TOPIC)
    registry = stage.broker.registry
    clients_bytes, feeds = stage.pool.clients_bytes, len(registry.router.feeds)
    put(stage, *((f"k{number}", number) for number in range(20)))
    for options in (PAGE, {"select": "count(*)"}):
        for number in range(2):
            stage.consumer(f"watcher {number}", "t/#", options=options)
        stage.turn()
        (state,) = registry.router.states
        assert len(registry.router.feeds) == feeds + 1
        assert len(state.readings) == 1
        stage.clients["watcher 0"].leave()
        stage.turn()
        assert len(state.readings) == 1
        stage.clients["watcher 1"].leave()
        stage.run(2.0)
        assert len(registry.router.feeds) == feeds
        assert not state.readings
        assert not len(stage.broker.orders)
        assert stage.pool.clients_bytes <= clients_bytes


def test_a_subscriber_that_stands_still_holds_no_records() -> None:
    stage = Stage(TOPIC)
    put(stage, *((f"k{number}", number) for number in range(20)))
    stuck = stage.consumer("stuck", "t/#", options=PAGE, reads=STUCK)
    stage.turn()
    for value in range(1000):
        put(stage, (f"k{value % 20}", 100 + value))
    (feed,) = (feed for feed in stage.broker.registry.router.feeds.values() if feed.live is not None)
    assert feed.lane.memory_bytes == 0
    stuck.reads = float("inf")
    image = Image()
    stage.run(1.0)
    image.read(stuck)
    assert image.records == truth(stage, 0, 3, down=True)
    assert stuck.outlet.taken < 10_000
    stage.broker.registry.watched.clear()
    put(stage, ("k0", 5000))
    assert not next(iter(stuck.session.subscriptions.values())).conflating


def test_an_order_that_has_no_room_ends_its_pages_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(TOPIC)
    put(stage, ("a", 1))
    watchers = [stage.consumer(f"watcher {number}", "t/#", options=PAGE) for number in range(40)]
    stage.turn()
    (order,) = stage.broker.orders._orders.values()
    order.bytes_max = 0
    put(stage, ("b", 2))
    assert all("takes up too much memory" in str(watcher.goodbye) for watcher in watchers)
    order_ends = stage.consumer("another", "t/#", options=PAGE)
    stage.run(1.0)
    assert told(order_ends) == [("snapshot_begin", None), ("b", 2), ("a", 1), ("snapshot_end", None)]


def lines_of_an_end(pages: int) -> int:
    """Ends an order with so many different pages."""
    stage = Stage(TOPIC)
    put(stage, ("a", 1))
    watchers = [stage.consumer(f"watcher {at}", "t/#", options=PAGE | {"skip": str(at)}) for at in range(pages)]
    stage.turn()
    (order,) = stage.broker.orders._orders.values()
    order.bytes_max = 0
    lines = steps(lambda: put(stage, ("b", 2)))
    stage.run(3.0)
    assert all(watcher.goodbye for watcher in watchers)
    return lines


def test_the_end_of_an_order_visits_each_of_its_pages_only_a_few_times() -> None:
    few, many = (lines_of_an_end(pages) for pages in (50, 400))
    assert many < 12 * few


def test_one_client_has_only_some_of_the_orders_that_live_pages_follow() -> None:
    stage = Stage(TOPIC)
    put(stage, ("a", 1))
    orders = stage.broker.orders
    clients = [stage.client(f"c{number}") for number in range(FOLLOWED_MAX // FOLLOWED_PER_CLIENT + 1)]

    def asks(client: Client, number: int) -> None:
        # One more filter for each page, for a client has one subscription to a filter.
        client.subscribe("/".join(["t", *"+" * number, "#"]), order_by=f"/{client.name}{number}", top="3")

    for client in clients[:-1]:
        for number in range(FOLLOWED_PER_CLIENT):
            asks(client, number)
        with pytest.raises(Refused, match="4 at most"):
            asks(client, 2 * FOLLOWED_PER_CLIENT)
    assert len(orders) == FOLLOWED_MAX, "the others are for queries"
    with pytest.raises(Refused, match="no room"):
        asks(clients[-1], 0)
    clients[-1].subscribe("t/#", order_by="/c00", top="2")
    clients[0].leave()
    stage.turn()
    asks(clients[-1], 0)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"order_by": "/v"}, "say top"),
        ({"top": "10001"}, "10,001"),
        ({"top": "1", "skip": "10000"}, "10,001"),
        ({"skip": "1"}, "say top"),
        ({"order_by": "v", "top": "1"}, "JSON pointer"),
        ({"order_by": "/v" * 600, "top": "1"}, "characters"),
        ({"top": "1", "query": "true"}, "query"),
        ({"top": "1", "from": "0"}, "from"),
        ({"group_by": "/v"}, "say select"),
        ({"select": "/v", "top": "1"}, "whole records"),
        ({"select": "count(*)", "top": "1"}, "whole records"),
        ({"select": "median(/v)"}, "count"),
        ({"top": "-1"}, "a number"),
        ({"order_bye": "/v"}, "order_by"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(options: dict[str, str], text: str) -> None:
    stage = Stage(TOPIC)
    client = stage.client("watcher")
    with pytest.raises(Refused, match=text):
        client.subscribe("t/#", **options)
    assert not stage.broker.registry.router.feeds.keys() - {next(iter(stage.broker.registry.router.feeds))}


def test_there_is_no_page_without_a_state_nor_for_a_session_that_outlives_its_connection() -> None:
    stage = Stage(TOPIC)
    with pytest.raises(Refused, match="no keyed"):
        stage.client("watcher").subscribe("u/#", **PAGE)
    with pytest.raises(Refused, match="outlive"):
        stage.client("durable", expiry_s=60.0).subscribe("t/#", **PAGE)
    with pytest.raises(Refused, match="shared"):
        stage.client("shared").subscribe("$share/g/t/#", **PAGE)


def test_mixed_types_have_their_order() -> None:
    stage = Stage(TOPIC)
    put(stage, ("text", "x"), ("true", True), ("one", 1), ("list", [1]), ("false", False), ("half", 0.5))
    watcher = stage.consumer("watcher", "t/#", options={"order_by": "/v", "top": "10"})
    stage.turn()
    assert [key for key, _ in told(watcher)[1:-1]] == ["false", "true", "half", "one", "text", "list"]
