"""What a client is sent before live records counts as lag until the client has taken it: snapshots, queries, live pages
and aggregates, retained records, changes since an offset, and what a conflation or a replaced subscription left."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import pytest
from tests.core.queries import ask, scan
from tests.core.stage import STUCK, Client, Stage
from tests.core.test_idle import steps

from headway.core.consumer import ArchiveLag, Subscription
from headway.core.delivery import rendering as batch
from headway.core.log.states import StatePass
from headway.core.message.record import Record
from headway.core.query import KeptOrders, RowsQuery, StateQuery, StateRequest, state_query
from headway.core.routing import RecordedRecords
from headway.core.telemetry.stats import account

TOPIC = '[[topic]]\nfilter = "t/#"\nkey = "property:key"\n'
KEYS = 40
SIZE = 200
POLICY = '[[policy]]\nname = "p"\ntopics = ["t/#"]\n[[policy.rule]]\nwhen = {when}\nthen = {then}\n'
DISCARD = '{{ action = "discard", which = "{which}"{more} }}'
PAGE = {"order_by": "offset desc", "top": "20"}
ROWS = {"select": "key, count(*)", "group_by": "key"}
KINDS: dict[str, tuple[dict[str, str], int]] = {
    "snapshot": ({"snapshot": "true"}, KEYS),
    "marks": ({"snapshot": "true", "marks": "true"}, KEYS + 2),
    "conflated snapshot": ({"snapshot": "true", "conflate": "0s"}, KEYS),
    "changes": ({"from": "21", "snapshot": "true"}, KEYS - 21),
    "query": ({"query": "true"}, KEYS + 2),
    "page": (PAGE, 20 + 2),
    "aggregates": (ROWS, KEYS + 2),
}
"""The options of a subscription, and how many records it is sent first."""


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "BATCH_BYTES", 1000)


def filled(toml: str = "", keys: int = KEYS) -> Stage:
    stage = Stage(TOPIC + toml)
    publisher = stage.client("publisher")
    for number in range(keys):
        publisher.publish("t/x", number, key=f"{number:05}", size=SIZE)
    return stage


def stuck(stage: Stage, kind: str) -> tuple[Client, Subscription]:
    """A client that reads nothing, and has asked for this; 300 bytes are in its socket."""
    client = stage.client("a", reads=STUCK, buffer=300)
    subscription = client.subscribe("t/#", **{name.replace("from", "from_"): v for name, v in KINDS[kind][0].items()})
    stage.run(1)
    return client, subscription


def read_all(stage: Stage, client: Client) -> None:
    client.reads, client.outlet.capacity = inf, 100_000
    stage.broker.writable(client.session, stage.now)
    stage.run(0.5)


@pytest.mark.parametrize("kind", KINDS)
def test_stuck_backfill_counts_in_lag_until_it_is_taken(kind: str) -> None:
    stage = filled()
    client, subscription = stuck(stage, kind)
    stage.run(4)
    first, lag = stage.stats(client), KINDS[kind][1]
    assert lag - 5 < first.lag_records <= lag, "one or a few records, or a mark, are in its socket"
    assert first.lag_bytes > (first.lag_records - 2) * (30 if kind == "aggregates" else SIZE)
    assert first.lag_age_ms == pytest.approx(5000, abs=300)
    sample = subscription.case.last_sample
    assert (sample.lag_records, sample.lag_bytes) == (first.lag_records, first.lag_bytes)
    assert sample.lag_age == pytest.approx(5, abs=0.3)
    assert sample.blocked_time == pytest.approx(5, abs=0.3)
    for _ in stage.steps(2):  # it takes some
        client.read(400)
    then = stage.stats(client)
    assert then.lag_records < first.lag_records - 5
    assert then.lag_bytes < first.lag_bytes
    read_all(stage, client)
    assert subscription.ended or not subscription.backfills
    if not subscription.ended:
        last = stage.stats(client)
        assert (last.lag_records, last.lag_bytes, last.lag_age_ms) == (0, 0, 0)
        assert last.state in ("ok", "conflating")
    assert len(client.seen) == lag


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("when", ['{ lag_records = "> 10" }', '{ lag_age = "> 3s" }'])
def test_limits_in_records_and_in_age_end_a_stuck_backfill(kind: str, when: str) -> None:
    stage = filled(POLICY.format(when=when, then='"disconnect"'))
    client, _ = stuck(stage, kind)
    stage.run(4)
    assert not client.connected


@pytest.mark.parametrize("kind", KINDS)
def test_client_that_takes_its_backfill_drains(kind: str) -> None:
    """A rate floor is for those who stand still, whatever a client is sent."""
    rule = POLICY.format(when='{ drain_rate = "< 400B/s" }\nfor = "1s"', then='"disconnect"')
    stage = filled(rule, keys=200)
    client = stage.client("a", reads=2000, buffer=500)
    client.subscribe("t/#", **{name.replace("from", "from_"): v for name, v in KINDS[kind][0].items()})
    stage.run(30)
    assert client.connected
    assert len(client.seen) >= 22
    rates = [one["text"] for one in stage.told("slow")]
    assert not rates


def test_last_batch_counts_until_its_client_has_taken_it() -> None:
    """A page of three small records is rendered at once, and is in no backfill any more."""
    stage = filled(keys=3)
    client = stage.client("a", reads=STUCK, buffer=300)
    subscription = client.subscribe("t/#", snapshot="true")
    stage.run(3)
    stats = stage.stats(client)
    assert (stats.lag_records, stats.lag_age_ms) == (2, pytest.approx(3000, abs=200))
    assert 0 < stats.lag_bytes == len(client.outlet.out)
    assert stats.held_bytes == stats.lag_bytes
    read_all(stage, client)
    assert not subscription.has_more
    assert stage.stats(client).lag_records == 0


@pytest.mark.parametrize("filter", ["r/#", "r/a/#", "r/+", "r/a/b"])
def test_retained_records_count_where_their_number_is_known(filter: str) -> None:
    stage = Stage()
    publisher = stage.client("publisher")
    for number in range(30):
        for topic in (f"r/{number}", f"r/a/{number}"):
            stage.broker.retained.put(Record(topic, b"x" * SIZE, sequence=1))
    stage.broker.retained.put(Record("r/a/b", b"x" * SIZE, sequence=1))
    publisher.publish("else", 1)
    client = stage.client("a", reads=STUCK, buffer=100)
    client.subscribe(filter)
    stage.run(3)
    stats = stage.stats(client)
    known = {"r/#": 61, "r/a/#": 31, "r/a/b": 1}.get(filter)
    if known is None:  # a wildcard before the end: nobody knows; what is rendered, and one
        assert 1 <= stats.lag_records <= 7
    else:
        assert stats.lag_records == known
    assert stats.lag_age_ms == pytest.approx(3000, abs=200)
    read_all(stage, client)
    assert stage.stats(client).lag_records == 0
    stage.broker.retained.put(Record("r/a/b", b"", sequence=1))
    assert stage.broker.retained.matching("r/a/b", 9, 0.0, lambda _: True) is None


def test_recorded_records_count_from_the_index_once_for_each_place() -> None:
    """A stand-in for the archive: its records have the offsets 1 to 50, each of 10 bytes."""
    asked: list[int] = []

    class Archive:
        def read(self, filter: str, after: int, upto: int, *_: object, held: bool) -> Any:
            return (Record("t", b"", sequence=one) if one % 2 else None for one in range(after + 1, upto + 1))

        def lag(self, filter: str, offset: int) -> ArchiveLag:
            asked.append(offset)
            return ArchiveLag(50, 51 - offset, 10 * (51 - offset), 0.0)

    source = RecordedRecords(Archive(), "t", 10, 40, lambda _: True, lambda *_: None)  # type: ignore[arg-type]
    assert source.waiting() == source.waiting() == (30, 300)
    assert asked == [11, 41]
    assert [getattr(next(source), "sequence", None) for _ in range(5)] == [11, None, 13, None, 15]
    assert source.waiting() == (25, 250)
    source.close()
    assert source.waiting() == (0, 0)


def test_older_per_key_counts_what_it_sends_in_the_place_of_what_waited() -> None:
    discard = DISCARD.format(which="older_per_key", more="")
    stage = filled(POLICY.format(when='{ lag_records = "> 100" }', then=discard), keys=10)
    client = stage.client("a", reads=STUCK, buffer=300)
    subscription = client.subscribe("t/#")
    stage.turn()
    publisher = stage.clients["publisher"]
    for turn in stage.steps(2):
        del turn
        for key in range(10):
            publisher.publish("t/x", key, key=f"{key:05}", size=SIZE)
    assert subscription.backfills
    stats = stage.stats(client)
    waits = subscription.cursor.lag_records
    assert stats.lag_records == pytest.approx(waits + 10, abs=2), "ten keys, and what came since"
    assert stats.lag_bytes > waits * SIZE + 8 * SIZE
    assert stats.lag_age_ms >= 1000
    assert account(subscription).lag_records <= stats.lag_records
    read_all(stage, client)
    assert stage.stats(client).lag_records == 0


def test_replaced_subscription_hands_its_lag_over() -> None:
    stage = filled()
    client = stage.client("a", reads=STUCK, buffer=300)
    client.subscribe("t/#")
    stage.clients["publisher"].publish("t/x", 0, 50, key="a", size=SIZE)
    stage.run(2)
    before = stage.stats(client)
    client.subscribe("t/#", 1, offsets="true")
    stage.run(1)
    after = stage.stats(client)
    assert after.lag_records == pytest.approx(before.lag_records, abs=1)
    assert after.lag_records > 40
    assert after.lag_age_ms == pytest.approx(before.lag_age_ms + 1000, abs=200)
    read_all(stage, client)
    assert stage.stats(client).lag_records == 0


def test_discards_leave_a_snapshot_whole_and_keep_as_many_live_records() -> None:
    discard = DISCARD.format(which="oldest", more=", keep_records = 5")
    stage = filled(POLICY.format(when='{ lag_records = "> 30" }', then=discard))
    client, subscription = stuck(stage, "snapshot")
    stage.clients["publisher"].publish("t/y", 100, 20, key="live", size=SIZE)
    stage.run(2)
    assert subscription.cursor.lag_records == 5
    read_all(stage, client)
    assert client.numbers == [*range(KEYS), *range(115, 120)]
    assert client.gap_told == {"discarded": 15}


def test_keys_that_change_count_once_more_until_the_pass_is_over() -> None:
    """They are sent live. What the snapshot has of them is no longer sent, which it finds when it comes there."""
    stage = filled()
    client, _ = stuck(stage, "snapshot")
    before = stage.stats(client).lag_records
    for number in range(KEYS - 10, KEYS):
        stage.clients["publisher"].publish("t/x", number, key=f"{number:05}", size=SIZE)
    stage.run(1)
    assert stage.stats(client).lag_records == before + 10
    read_all(stage, client)
    assert len(client.seen) == KEYS
    assert stage.stats(client).lag_records == 0


def test_selector_is_estimated_from_what_it_has_accepted() -> None:
    stage = filled(keys=400)
    client = stage.client("a", reads=STUCK, buffer=300)
    client.subscribe("t/#", snapshot="true", selector="key LIKE '%5'")
    stage.run(1)
    assert stage.stats(client).lag_records == pytest.approx(40, abs=12), "about a tenth of what is left"
    read_all(stage, client)
    assert len(client.seen) == 40
    assert stage.stats(client).lag_records == 0


def test_queries_pages_and_aggregates_show_what_they_hold() -> None:
    stage = filled(keys=200)
    client, _ = stuck(stage, "query")
    held = stage.stats(client).held_bytes
    for number in range(150, 160):  # the query keeps what it had
        stage.clients["publisher"].publish("t/x", number, key=f"{number:05}", size=SIZE)
    stage.run(0.5)
    assert stage.stats(client).held_bytes >= held + 10 * (300 + SIZE)
    for options, least in ((PAGE, 20 * (500 + SIZE)), (ROWS, 200 * 500)):
        one, two = (stage.consumer(f"{least}/{number}", "t/#", options=options) for number in range(2))
        stage.run(0.5)
        shares = [stage.stats(each).held_bytes for each in (one, two)]
        assert shares[0] == shares[1] > least // 2
        one.leave()
        stage.run(0.5)
        assert stage.stats(two).held_bytes == pytest.approx(2 * shares[1], abs=1)
    plain = stage.consumer("plain", "t/#")
    stage.run(0.5)
    assert stage.stats(plain).held_bytes == 0


@pytest.mark.parametrize("kind", KINDS)
def test_look_at_a_backfill_costs_the_same_whatever_its_size(kind: str) -> None:
    lines = []
    for keys in (KEYS, 50 * KEYS):
        stage = filled(keys=keys)
        _, subscription = stuck(stage, kind)
        assert subscription.backfills
        lines.append(steps(lambda one=subscription: (one.lag_records, one.lag_bytes, one.oldest_time())))  # type: ignore[misc]
        stage.checks = False
    assert lines[0] == lines[1] < 120


def test_plain_consumer_counts_no_backfills(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Subscription, "backfill_lag", lambda _: pytest.fail("it has none"))
    monkeypatch.setattr(StatePass, "waiting", lambda _: pytest.fail("it has none"))
    stage = filled()
    client = stage.client("a", reads=STUCK, buffer=300)
    client.subscribe("t/#")
    stage.clients["publisher"].publish("t/x", 0, 50, key="a", size=SIZE)
    stage.run(2)
    assert stage.stats(client).lag_records > 40


@pytest.mark.parametrize(("selected", "answers"), [
    ({}, KEYS), ({"top": 7, "skip": 2}, 7), ({"order_by": "/x", "top": 30}, 30), ({"select": "key"}, KEYS),
    ({"select": "key, count(*)", "group_by": "key"}, KEYS), ({"selector": "key LIKE '%5'"}, 4),
])  # fmt: skip
@pytest.mark.parametrize("begin", [scan, lambda request, registry: ask(request, registry, KeptOrders(registry))])
def test_query_over_http_counts_what_it_has_not_given(
    selected: dict[str, Any], answers: int, begin: Callable[..., StateQuery], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_query, "STEP_RECORDS", 8)
    stage = filled()
    query = begin(StateRequest("t/#", **selected), stage.broker.registry)
    for _ in query.prepare():
        pass
    given, exact = 0, "selector" not in selected
    for some in query.rows() if isinstance(query, RowsQuery) else query.steps():
        given += len(some)
        left, size = query.waiting()
        assert query.given == given
        if some or given:
            assert left == answers - given if exact else answers - given <= left <= KEYS
            assert size >= left * (20 if "group_by" in selected else SIZE)
    assert (given, query.waiting()) == (answers, (0, 0))
    query.close()
