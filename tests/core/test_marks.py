"""Marks of a snapshot: where it begins and ends, as of when, and what is missing; queries that end behind it."""

from __future__ import annotations

import pytest
from tests.core.guarded_stage import EVERYTHING, Guarded
from tests.core.stage import STUCK, Client, Stage

from headway.core.base.errors import Refused
from headway.core.clients import subscriptions as subscribing
from headway.core.clients.subscriptions import QUERY_S
from headway.core.delivery import marks
from headway.core.delivery import rendering as batch
from headway.core.log.states import ENTRY_BYTES
from headway.core.message.record import Record
from headway.core.message.topics import matches
from headway.core.permission import Permission

TOPIC = '[[topic]]\nfilter = "t/#"\nkey = "property:key"\n'


def filled(keys: str = "abc", **pool: str) -> Stage:
    stage = Stage(TOPIC, **pool)
    publisher = stage.client("publisher")
    for number, key in enumerate(keys):
        publisher.publish("t/x", number, key=key)
    return stage


def told(client: Client) -> list[tuple[str | None, str | None]]:
    """The event and the key of each record."""
    return [(seen.event, seen.key) for seen in client.seen]


def figures(client: Client, event: str) -> dict[str, str]:
    (mark,) = (seen for seen in client.seen if seen.event == event)
    assert (mark.payload, mark.qos, mark.retain, mark.offset) == (b"", 0, False, None)
    return dict(mark.figures)


@pytest.mark.parametrize("filter", ["t/#", "#", "+/x", "t/x"])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_snapshot_with_marks_and_live_records_behind_it(filter: str, qos: int) -> None:
    stage = filled()
    options = {"snapshot": "true", "marks": "true", "offsets": "true", "key": "property:key"}
    client = stage.consumer("a", filter, qos, options=options)
    stage.turn()
    if filter in ("t/#", "t/x"):  # the others are no part of the declared state
        stage.clients["publisher"].publish("t/x", 3, key="d")
        stage.turn()
        begin, end = ("snapshot_begin", None), ("snapshot_end", None)
        assert told(client) == [begin, (None, "a"), (None, "b"), (None, "c"), end, (None, None)]
        last = stage.broker.registry.sequence - 1
        assert figures(client, begin[0]) == {"headway-offset": str(last), "headway-keys": "3", "headway-evicted": "0"}
        counts = {"headway-records": "3", "headway-missing": "0", "headway-evicted": "0"}
        assert figures(client, end[0]) == {"headway-offset": str(last)} | counts
    assert all(matches(filter, seen.topic) for seen in client.seen)
    assert [client.seen[0].event, client.seen[-1].event].count("snapshot_begin") == 1


def test_who_does_not_ask_sees_no_marks() -> None:
    stage = filled()
    client = stage.consumer("a", "t/#", options={"snapshot": "true"})
    stage.turn()
    assert told(client) == [(None, None)] * 3


def test_an_empty_state_has_both_marks() -> None:
    stage = Stage(TOPIC)
    client = stage.consumer("a", "t/#", options={"query": "true"})
    stage.turn()
    assert told(client) == [("snapshot_begin", None), ("snapshot_end", None)]


def test_a_query_is_over_behind_its_end_mark_and_others_go_on() -> None:
    stage = filled()
    live = stage.consumer("live", "t/#")
    client = stage.client("a", expiry_s=60)
    for _ in range(2):
        subscription = client.subscribe("t/#", query="true")
        stage.clients["publisher"].publish("t/x", 9, key="z")
        stage.run(0.5)
        assert subscription.ended
        assert not client.session.subscriptions
    keys = [seen.key for seen in client.seen if seen.event is None]
    assert keys == ["a", "b", "c", "a", "b", "c", "z"]
    assert len(live.seen) == 2
    assert len(stage.broker.registry.router.feeds) == 2, "the live feed, and the monitor's"


def test_the_same_query_again_before_it_was_read_is_one() -> None:
    stage = filled()
    client = stage.client("a", reads=STUCK, buffer=10)
    assert client.subscribe("t/#", query="true") is client.subscribe("t/#", query="true")
    other = client.subscribe("t/#", query="true", selector="key = 'b'")
    client.reads, client.outlet.capacity = float("inf"), 10_000
    stage.broker.writable(client.session, stage.now)
    stage.run(0.5)
    assert other.ended
    assert [seen.key for seen in client.seen if seen.event is None][-1] == "b"


def test_a_query_may_be_asked_again_at_once() -> None:
    stage = filled()
    client = stage.client("a")
    for count in range(1, 4):
        client.subscribe("t/#", query="true")
        stage.turn()
        assert len(client.seen) == 5 * count
    live = client.subscribe("t/#")
    stage.clients["publisher"].publish("t/x", 9, key="z")
    stage.run(0.5)
    assert not live.ended
    assert told(client)[15:] == [(None, None)]


@pytest.mark.parametrize("query", [True, False])
def test_what_is_evicted_while_it_is_sent(query: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "BATCH_BYTES", 300)
    room = 4 * 10 * (ENTRY_BYTES + 500)
    stage = filled("abcdefgh", memory=str(room))
    options = {"query": "true"} if query else {"snapshot": "true", "marks": "true"}
    client = stage.consumer("a", "t/#", options=options, reads=STUCK, buffer=10)
    stage.turn()
    (state,) = stage.broker.registry.router.states
    before = len(state)
    for number in range(20):
        stage.clients["publisher"].publish("t/x", number, key=f"new {number}")
    stage.turn()
    client.reads, client.outlet.capacity = float("inf"), 100_000
    stage.broker.writable(client.session, stage.now)
    stage.run(0.5)
    end = figures(client, "snapshot_end")
    records, missing = int(end["headway-records"]), int(end["headway-missing"])
    assert records == len([seen for seen in client.seen if seen.key is not None])
    assert int(end["headway-evicted"]) == state.evicted_records > 0
    assert (records + missing, missing > 0) == (before, not query), "a query answers what was there"


@pytest.mark.parametrize(
    ("filter", "options", "error"),
    [
        ("$share/g/t/#", {"query": "true"}, "shared subscription"),
        ("t/#", {"query": "true", "from_": "1"}, "not with from"),
        ("t/#", {"query": "true", "conflate": "1s"}, "not with from or conflate"),
        ("t/taken", {"query": "true"}, "would replace"),
    ],
)
def test_queries_that_are_none(filter: str, options: dict[str, str], error: str) -> None:
    stage = filled()
    client = stage.consumer("a", "t/taken")
    with pytest.raises(Refused, match=error):
        client.subscribe(filter, **options)


def test_a_snapshot_takes_the_place_of_changes_whose_deletes_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.core.log.states.DELETES_MAX", 1)
    stage = filled()
    for key in "abc":
        stage.clients["publisher"].publish("t/x", 0, key=key, empty=True)
    stage.clients["publisher"].publish("t/x", 7, key="d")
    last = stage.broker.registry.sequence
    for seen, events in ((last - 2, ["delete", None]), (1, ["snapshot_begin", None, "snapshot_end"])):
        options = {"marks": "true", "from_": str(seen)}
        client = stage.consumer(f"from {seen}", "t/#", options=options)
        stage.turn()
        assert [one.event for one in client.seen] == events, seen


@pytest.mark.parametrize("marks", ["true", "false"])
def test_an_offset_that_the_broker_never_reached_is_that_of_another_life_of_it(marks: str) -> None:
    stage = filled()
    client = stage.consumer("a", "t/#", options={"marks": marks, "from_": str(stage.broker.registry.sequence + 1000)})
    stage.turn()
    stage.clients["publisher"].publish("t/x", 7, key="d")
    stage.turn()
    events = [one.event for one in client.seen if one.event]
    assert len(client.seen) - len(events) == len("abcd")
    if marks == "true":
        assert events == ["snapshot_begin", "snapshot_end"]
    else:
        assert [one.gap.reason for one in client.seen if one.gap is not None] == ["not_retained"]


def test_queries_that_are_not_read_are_few_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "BATCH_BYTES", 100)
    monkeypatch.setattr(subscribing, "QUERIES_MAX", 2)
    stage = filled("abcdefgh")
    for name in "xy":
        stage.consumer(name, "t/#", options={"query": "true"}, reads=STUCK, buffer=10)
    with pytest.raises(Refused, match="2 queries of this state"):
        stage.consumer("z", "t/#", options={"query": "true"})
    stage.now += QUERY_S + 1
    stage.tick()
    stage.run(0.5)
    client = stage.consumer("late", "t/#", options={"query": "true"})
    stage.turn()
    assert client.seen[-1].event == "snapshot_end"
    stage.run(0.5)
    (state,) = stage.broker.registry.router.states
    assert not state.readings
    assert not any(client.session.subscriptions for client in stage.clients.values() if client is not stage.monitor)


def test_a_query_that_holds_too_much_says_that_it_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "BATCH_BYTES", 100)
    monkeypatch.setattr(marks, "STEP_RECORDS", 1)
    monkeypatch.setattr("headway.core.log.states.SAVED_BYTES_MAX", 1000)
    stage = filled("abcdefgh")
    client = stage.consumer("a", "t/#", options={"query": "true"}, reads=STUCK, buffer=10)
    stage.turn()
    for number, key in enumerate("abcdefgh"):
        stage.clients["publisher"].publish("t/x", number, key=key)
    client.reads, client.outlet.capacity = float("inf"), 100_000
    stage.broker.writable(client.session, stage.now)
    stage.run(0.5)
    assert client.seen[-1].event == "snapshot_broken"
    assert "faster than this answer is read" in client.seen[-1].figures["headway-why"]


def test_a_source_that_is_closed_gives_nothing_more() -> None:
    (state,) = filled().broker.registry.router.route("t/x").states
    records = marks.ListedRecords([Record("t/x", b"1"), Record("t/x", b"2")], 2, 4)
    marked = marks.MarkedSnapshot(state, records, "t/#")
    next(marked)
    marked.close()
    for source in (marked, records):
        with pytest.raises(StopIteration):
            next(source)


@pytest.mark.parametrize(
    ("rights", "told_keys", "told_evicted"),
    [
        (Permission(publish=("#",), subscribe=("#",)), True, True), (Permission(subscribe=("t/#",)), True, True),
        (Permission(subscribe=("t/x",)), False, False), (Permission(subscribe=("t/x",), admin=("read",)), True, True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("way", [{"query": "true"}, {"snapshot": "true", "marks": "true"}])
def test_marks_tell_figures_of_a_state_only_to_who_may_read_all_of_it(
    rights: Permission, told_keys: bool, told_evicted: bool, way: dict[str, str]
) -> None:
    guarded = Guarded(EVERYTHING, toml=TOPIC)
    publisher = guarded.client("publisher")
    for number in range(4):
        publisher.publish(f"t/{'xy'[number % 2]}", number, key=str(number))
    clients = [guarded.client("a"), guarded.client("b")]
    guarded.reload(rights)
    guarded.stage.turn()
    (state,) = guarded.stage.broker.registry.router.states
    denied = guarded.denials.counts.total()
    for evicted, client in zip((0, 5), clients, strict=True):
        state.evicted_records = evicted
        client.subscribe("t/x", **way)
        guarded.stage.turn()
        begin, end = figures(client, "snapshot_begin"), figures(client, "snapshot_end")
        assert begin.get("headway-keys") == ("4" if told_keys else None)
        shown = str(evicted) if told_evicted or not evicted else "some"
        assert (begin["headway-evicted"], end["headway-evicted"]) == (shown, shown)
        assert end["headway-records"] == "2", "the client's own"
    assert guarded.denials.counts.total() == denied, "nobody asked for more"


def test_marks_of_a_page_tell_its_keys_but_not_what_was_evicted_elsewhere() -> None:
    guarded = Guarded(EVERYTHING, toml=TOPIC)
    publisher = guarded.client("publisher")
    for number in range(6):
        publisher.publish(f"t/{'xy'[number % 2]}", number, key=str(number))
    client = guarded.client("a")
    guarded.reload(Permission(subscribe=("t/x",)))
    guarded.stage.turn()
    (state,) = guarded.stage.broker.registry.router.states
    state.evicted_records = 5
    page = {"order_by": "offset", "top": "2", "live": "true", "marks": "true", "snapshot": "true"}
    client.subscribe("t/x", **page)
    guarded.stage.run(1.0)
    begin = figures(client, "snapshot_begin")
    assert (begin["headway-keys"], begin["headway-evicted"]) == ("2", "some")
