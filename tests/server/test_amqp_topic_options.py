"""Options of consumers of topics over AMQP: they do what they do for subscriptions over MQTT."""

from __future__ import annotations

from tests.server.amqp_stage import Client, House
from tests.server.amqp_topics_stage import TOPICS, publish, reader


def test_a_selector_chooses_records(house: House, publisher: Client) -> None:
    one = reader(house)
    one.consume("a", selector="delay > 15")
    publisher.put("a", b'{"delay": 20}', b'{"delay": 10}', b'{"delay": 16}', exchange=TOPICS)
    one.run()
    assert [body for _, body in one.got] == [b'{"delay": 20}', b'{"delay": 16}']


def test_a_snapshot_comes_before_live_records(house: House, publisher: Client) -> None:
    first, second = reader(house, "first"), reader(house, "second")
    first.consume("#", snapshot="true")
    publish(publisher, a=1, b=2)
    publish(publisher, a=3)
    second.consume("#", snapshot="true")
    publish(publisher, b=4)
    second.run()
    assert second.got == [("b", b"2"), ("a", b"3"), ("b", b"4")]


def test_a_conflated_consumer_gets_the_latest_of_each_key(house: House, publisher: Client) -> None:
    one = reader(house)
    one.consume("#", conflate="500ms")
    for number in range(50):
        publish(publisher, a=number, b=-number)
    one.run()
    assert one.got == []
    house.pass_time(0.6)
    one.run()
    assert one.got == [("a", b"49"), ("b", b"-49")]


def test_offsets_are_headers(house: House, publisher: Client) -> None:
    one, other = reader(house), reader(house, "other")
    one.consume("#", offsets="true")
    other.consume("#")
    publisher.put("a", b"1", b"2", exchange=TOPICS, headers={"own": "x"})
    one.run()
    other.run()
    offsets = [content.headers["x-headway-offset"] for content in one.contents]
    assert offsets == [offsets[0], offsets[0] + 1]
    assert [content.headers["own"] for content in one.contents] == ["x", "x"]
    assert [content.headers for content in other.contents] == [{"own": "x"}] * 2


def test_a_gap_is_told_in_the_headers_of_the_next_record(publisher: Client) -> None:
    house = House("""
[[policy]]
name = "p"
[[policy.rule]]
when = { lag_records = 5 }
then = { action = "discard", which = "oldest", keep_records = 2 }
""")
    source, slow = Client(house, "publisher"), reader(house, "slow")
    slow.consume("a")
    slow.sock.capacity, slow.reads = 10, False
    for number in range(10):
        publish(source, a=number)
    house.pass_time(1.0)
    slow.reads = True
    slow.run()
    told = [content for content in slow.contents if content.headers]
    bodies = [body for _, body in slow.got]
    missing = 10 - len(bodies)
    assert missing > 0
    assert bodies[0] == b"0"
    assert bodies[1:] == [b"%d" % number for number in range(10 - len(bodies) + 1, 10)]
    [gap] = told
    assert gap.body == bodies[1]
    assert gap.headers["x-headway-gap-records"] == missing
    assert gap.headers["x-headway-gap-reason"] == "discarded"
    assert gap.headers["x-headway-gap-last"] - gap.headers["x-headway-gap-first"] == missing - 1


KEYED = """
[[topic]]
filter = "s/#"
key = "topic"
"""


def test_a_snapshot_is_marked_and_deletes_are_told(publisher: Client) -> None:
    """Also those of AMQP publishers, whose properties go on as they came otherwise."""
    house = House(KEYED)
    source, one = Client(house, "publisher"), reader(house)
    source.put("s.a", b"1", exchange=TOPICS, headers={"own": "x"}, content_type="text/plain")
    source.put("s.b", b"2", exchange=TOPICS)
    one.consume("s.#", snapshot="true", marks="true", offsets="true")
    source.put("s.a", b"", exchange=TOPICS)
    one.run()
    events = [(content.headers.get("headway-event"), content.headers.get("headway-key")) for content in one.contents]
    assert events == [("snapshot_begin", None), (None, "s/a"), (None, "s/b"), ("snapshot_end", None), ("delete", "s/a")]
    begin, first, second, end, delete = one.contents
    assert (first.headers["own"], first.properties.content_type) == ("x", "text/plain")
    assert (begin.headers["headway-keys"], end.headers["headway-records"]) == ("2", "2")
    offsets = [content.headers.get("x-headway-offset") for content in one.contents]
    assert offsets == [None, 1, 2, None, 3]
    assert begin.method.routing_key == "s.-"
    assert second.method.delivery_tag + 2 == delete.method.delivery_tag


def test_a_query_cancels_its_consumer_behind_the_end_mark() -> None:
    house = House(KEYED)
    source, one = Client(house, "publisher"), reader(house)
    source.put("s.a", b"1", exchange=TOPICS)
    for _ in range(2):
        one.consume("s.#", query="true")
        house.pass_time(0.5)
        one.run()
        assert [content.headers.get("headway-event") for content in one.contents[-3:]] == [
            "snapshot_begin", None, "snapshot_end",
        ]  # fmt: skip
        assert one.new()[-1] == "1 Basic.Cancel t"
    source.put("s.a", b"2", exchange=TOPICS)
    one.run()
    assert one.new() == []


def test_a_key_that_no_longer_matches_is_out_of_focus() -> None:
    house = House(KEYED)
    source, one = Client(house, "publisher"), reader(house)
    one.consume("s.#", selector="delay > 15", out_of_focus="true")
    for delay in (20, 10, 5):
        source.put("s.a", b'{"delay": %d}' % delay, exchange=TOPICS, headers={"own": "x"})
    one.run()
    assert [(content.body, content.headers.get("headway-event")) for content in one.contents] == [
        (b'{"delay": 20}', None), (b"", "out_of_focus"),
    ]  # fmt: skip
    assert {name: one.contents[1].headers[f"headway-{name}"] for name in ("key", "why")} == {
        "key": "s/a", "why": "changed",
    }  # fmt: skip
    assert [content.method.delivery_tag for content in one.contents] == [1, 2]
