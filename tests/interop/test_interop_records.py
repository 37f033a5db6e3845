"""Records over HTTP: what was published is what comes out, in Arrow and in JSON lines, from where and for how much one
likes."""

from __future__ import annotations

import json
import os
import socket
import urllib.parse
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.interop.amqp_pika import Pika
from tests.interop.amqp_pika import properties as amqp_properties
from tests.interop.conftest import BrokerFactory
from tests.interop.pahos import paho, properties
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.records import ask, recording
from tests.interop.waiting import PATIENCE_S, until
from tests.server.canned import Ran

pytest_plugins = ("tests.interop.records_fixtures",)
MIB = 1024 * 1024


# -- what comes out ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["arrow", "json"])
def test_what_was_published_comes_out(keeping: BrokerProcess, name: str, format: str) -> None:
    topic = f"flights/jfk/{name}"
    before = datetime.now(UTC)
    said = properties("PUBLISH", ContentType="application/json", ResponseTopic="re/ply", CorrelationData=b"c",
                      UserProperty=[("a", "ä"), ("a", "2")])  # fmt: skip
    with paho(keeping.ports["mqtt"], name) as client:
        client.publish(topic, b'{"tailnum": "N1"}', 1, properties=said)
        client.publish(topic, b"\xff\x00no json", 2, retain=True)
        client.publish(topic, b"", 1)
    answer = ask(keeping, topic, format=format)
    one, other, empty = answer.rows
    assert [row["topic"] for row in answer.rows] == [topic] * 3
    assert [row["key"] for row in answer.rows] == ["N1", None, None]
    assert answer.offset("Earliest") <= one["offset"] < other["offset"] < empty["offset"] < answer.offset("Latest")
    assert answer.offset("Next") == answer.offset("Latest")
    full = {"content_type": "application/json", "response_topic": "re/ply", "qos": 1, "retain": False}
    if format == "arrow":
        assert answer.table.schema.metadata == {
            f"headway.{word.lower()}_offset".encode(): answer.headers[f"Headway-{word}-Offset"].encode()
            for word in ("Earliest", "Latest", "Next")
        }
        assert one["properties"] == full | {"correlation_data": b"c", "user": [("a", "ä"), ("a", "2")]}
        nothing = dict.fromkeys(("content_type", "response_topic", "correlation_data")) | {"user": []}
        assert other["properties"] == nothing | {"qos": 2, "retain": True}
        assert [row["payload"] for row in answer.rows] == [b'{"tailnum": "N1"}', b"\xff\x00no json", b""]
        times = [row["timestamp"] for row in answer.rows]
    else:
        assert one["properties"] == full | {"correlation_data": "c", "user": [["a", "ä"], ["a", "2"]]}
        assert other["properties"] == {"qos": 2, "retain": True}
        assert (one["payload"], other["payload_base64"]) == ('{"tailnum": "N1"}', "/wBubyBqc29u")
        times = [datetime.fromisoformat(row["timestamp"]) for row in answer.rows]
    assert before - timedelta(seconds=1) < times[0] <= times[1] <= times[2] < datetime.now(UTC) + timedelta(seconds=1)


def test_what_comes_by_amqp_has_its_headers_as_far_as_they_are_text(keeping: BrokerProcess, name: str) -> None:
    said = amqp_properties(
        content_type="text/plain", headers={"text": "words", "number": 7, "table": {"x": 1}}, delivery_mode=2,
        correlation_id="c", reply_to="re.ply",
    )  # fmt: skip
    client = Pika(keeping.ports["amqp"])
    client.out.basic_publish("amq.topic", f"flights.{name}", b"body", said)
    client.close()
    (row,) = ask(keeping, f"flights/{name}").rows
    user = dict(row["properties"]["user"])
    assert user["text"] == "words"
    assert "table" not in user
    assert (row["properties"]["content_type"], row["properties"]["response_topic"]) == ("text/plain", "re/ply")
    assert (row["properties"]["correlation_data"], row["properties"]["qos"]) == (b"c", 1)
    assert (row["payload"], row["key"]) == (b"body", f"flights/{name}")


def test_a_filter_over_two_recordings_gives_both_in_order(keeping: BrokerProcess, publisher: Raw, name: str) -> None:
    topics = [f"flights/{place}/{name}" for place in ("jfk", "ewr", "jfk", "lga", "ewr", "jfk")]
    for number, topic in enumerate(topics):
        publisher.published(topic, b'{"tailnum": %d}' % number)
    rows = ask(keeping, f"flights/+/{name}").rows
    assert [row["topic"] for row in rows] == topics
    assert [row["payload"] for row in rows] == [b'{"tailnum": %d}' % number for number in range(6)]
    assert [row["key"] for row in rows] == ["0", topics[1], "2", topics[3], topics[4], "5"]
    assert [row["offset"] for row in rows] == sorted(row["offset"] for row in rows)
    assert {row["topic"] for row in ask(keeping, f"flights/jfk/{name}").rows} == {topics[0]}


def test_payloads_and_keys_of_all_sizes_come_out_as_they_went_in(keeping: BrokerProcess, publisher: Raw) -> None:
    """Many in one run of equal sizes, many of different ones, more than fit into a batch, and single large ones."""
    sent = [b'{"tailnum": "N%05d"}' % number for number in range(3000)]
    sent += [f'{{"tailnum": "ü{"x" * (number % 97)}"}}'.encode() for number in range(3000)]
    sent += [os.urandom(700_000) for _ in range(3)] + [b""] * 10
    for at in range(0, len(sent), 500):
        publisher.publish_all("plain", sent[at : at + 500])
    publisher.published("plain", b"last")
    answer = ask(keeping, "plain")
    assert answer.table.column("payload").to_pylist() == [*sent, b"last"]
    assert answer.table.column("key").to_pylist()[2999:3003] == ["N02999", "ü", "üx", "üxx"]
    assert answer.table.column("key").null_count == 3 + 10 + 1
    answer.table.validate(full=True)


# -- from where to where ----------------------------------------------------------------------------------------------


def test_from_and_to_as_offsets_and_times(keeping: BrokerProcess, publisher: Raw, name: str) -> None:
    topic = f"flights/{name}"
    for number in range(6):
        publisher.published(topic, str(number).encode())
    rows = ask(keeping, topic).rows
    offsets, times = [row["offset"] for row in rows], [row["timestamp"] for row in rows]

    def got(**query: object) -> str:
        return b"".join(row["payload"] for row in ask(keeping, topic, **query).rows).decode()

    assert got() == got(from_="earliest") == got(from_="-5m", to=offsets[-1] + 1) == "012345"
    assert got(from_=offsets[2], to=offsets[4]) == "23"
    assert got(from_=offsets[2] + 1, to=offsets[2] + 1) == ""
    assert got(to=times[3].isoformat()) == got(to=times[3].isoformat().replace("+00:00", "Z")) == "012"
    assert got(from_=times[3].isoformat(), to=offsets[5]) == "34"
    assert got(from_="2999-01-01") == got(to="2001-01-01") == got(to="-5m") == ""
    later = ask(keeping, topic, from_=offsets[-1] + 10**9)
    assert (later.rows, later.offset("Next")) == ([], offsets[-1] + 10**9)
    head = ask(keeping, topic, "HEAD", from_="earliest")
    assert (head.status, head.body, head.offset("Latest")) == (200, b"", offsets[-1] + 1)


@pytest.mark.parametrize("format", ["arrow", "json"])
def test_an_answer_cut_short_says_where_to_go_on(
    keeping: BrokerProcess, publisher: Raw, name: str, format: str
) -> None:
    topic = f"flights/{name}"
    sent = [b"x" * size for size in (40, 40, 30, 300, 0, 0, 99, 1, 100, 101)]
    publisher.publish_all(topic, sent)
    publisher.published(topic, b"end")
    start: object = "earliest"
    got: list[list[int]] = []
    while True:
        answer = ask(keeping, topic, from_=start, max_bytes="100B", format=format)
        got.append([len(row["payload"]) for row in answer.rows])
        start = answer.offset("Next")
        if start == answer.offset("Latest"):
            break
    assert [size for sizes in got for size in sizes] == [len(payload) for payload in sent] + [3]
    assert all(sum(sizes) <= 100 or len(sizes) == 1 for sizes in got)
    assert len(got) < len(sent)


def test_max_records_counts_no_holes_and_no_records_of_other_topics(
    keeping: BrokerProcess, publisher: Raw, name: str
) -> None:
    topic = f"flights/{name}"
    for number in range(10):
        publisher.publish_all(f"flights/other-{name}", [b"y"] * 7)
        publisher.publish_all(topic, [b"%d" % number, b"x" * 50])
    publisher.published(topic, b"end")
    start: object = "earliest"
    got: list[int] = []
    while True:
        answer = ask(keeping, topic, from_=start, max_records=6)
        got.append(len(answer.rows))
        start = answer.offset("Next")
        if start == answer.offset("Latest"):
            break
    assert got == [6, 6, 6, 3]
    both = ask(keeping, topic, max_records=6, max_bytes="60B")
    assert [len(row["payload"]) for row in both.rows] == [1, 50, 1]
    assert ask(keeping, topic, deleted="1,x").error.startswith("deleted='1,x': ")
    for wrong in ("0", "-1", "many", "1.5"):
        assert ask(keeping, topic, max_records=wrong).error.startswith(f"max_records='{wrong}': ")


def test_what_never_was_is_not_gone(start: BrokerFactory, tmp_path: Path) -> None:
    """Whoever waits at the earliest offset of a topic without records: others may be numbered before its own."""
    topics = '[[topic]]\nfilter = "new/#"\nkeep = "7d"\n[[topic]]\nfilter = "other/#"\nkeep = "7d"\n'
    broker = start(recording(tmp_path / "journal", topics))
    earliest = ask(broker, "new/#").offset("Earliest")
    with Raw(broker.ports["mqtt"], "publisher") as publisher:
        publisher.published("other/a", b"before")
        publisher.published("new/a", b"first")
    (row,) = ask(broker, "new/#", from_=earliest).rows
    assert row["offset"] > earliest == 1
    assert ask(broker, "new/#", from_=0).rows == [row], "offset 0 is where a program begins that counts for itself"
    broker.stop()


def test_what_is_deleted_is_gone_and_said_so(start: BrokerFactory, tmp_path: Path) -> None:
    topics = '[[topic]]\nfilter = "old/#"\nkeep = "200kB"\n'
    broker = start(recording(tmp_path / "journal", topics, segment="100kB"))
    with Raw(broker.ports["mqtt"], "publisher") as publisher:
        for number in range(10):
            publisher.published("old/a", b"%06d" % number * 10_000)

    def listed() -> dict[str, Any]:
        (found,) = broker.get("/v1/topics")["topics"]
        return found

    until(lambda: listed()["bytes"] <= 200_000, what="old segments are deleted")
    first = listed()["earliest"]
    assert first > 5
    gone = ask(broker, "old/a", from_=first - 1)
    assert (gone.status, gone.offset("Earliest"), json.loads(gone.body)["earliest"]) == (410, first, first)
    told = f"offset {first - 1} is not kept any more, all are from {first} on; from=earliest reads all that is held"
    assert gone.error == told
    assert ask(broker, "old/a", from_=0).status == 410
    rows = ask(broker, "old/#", from_="earliest").rows
    assert rows[0]["offset"] == first == ask(broker, "old/#", from_=first).rows[0]["offset"]
    assert rows[-1]["payload"] == b"000009" * 10_000
    assert ask(broker, "old/#", from_="-5m").rows == rows
    with Raw(broker.ports["mqtt"], "reader") as reader:
        reader.subscribe("old/#", user=(("from", "1"),))
        told = reader.message().user
        assert (told["gap-reason"], told["gap-first"], told["gap-last"]) == ("not_retained", "2", str(first - 1))
        assert int(told["gap-records"]) == first - 2
    broker.stop()


def test_from_earliest_reads_all_that_any_topic_still_holds(start: BrokerFactory, tmp_path: Path) -> None:
    """The filter reads two recorded topics, and one is trimmed further than the other."""
    topics = '[[topic]]\nfilter = "t/small"\nkeep = "200kB"\n[[topic]]\nfilter = "t/#"\nkeep = "1d"\n'
    broker = start(recording(tmp_path / "journal", topics, segment="100kB"))
    with Raw(broker.ports["mqtt"], "publisher") as publisher:
        for number in range(10):
            publisher.published("t/small", b"%06d" % number * 10_000)
            publisher.published("t/a", b"%d" % number)

    def listed() -> dict[str, dict[str, Any]]:
        return {one["filter"]: one for one in broker.get("/v1/topics")["topics"]}

    until(lambda: listed()["t/small"]["bytes"] <= 200_000, what="old segments are deleted")
    answer = ask(broker, "t/#", from_="earliest")
    whole = answer.offset("Earliest")
    assert listed()["t/#"]["earliest"] < 5 < whole <= listed()["t/small"]["earliest"]
    offsets = [row["offset"] for row in answer.rows]
    assert [row["payload"] for row in answer.rows if row["topic"] == "t/a"] == [b"%d" % number for number in range(10)]
    assert ask(broker, "t/#", from_="-5m").rows == answer.rows
    assert answer.headers["Headway-Deleted-Offsets"] == str(whole - 1)
    assert "Headway-Deleted-Offsets" not in ask(broker, "t/a").headers
    # page by page
    page, paged = ask(broker, "t/#", max_records=2), list[int]()
    while page.rows:
        paged += [row["offset"] for row in page.rows]
        more = page.offset("Next")
        page = ask(broker, "t/#", from_=more, max_records=2, deleted=page.headers.get("Headway-Deleted-Offsets", ""))
    assert paged == offsets
    # an offset, of which is not known what is gone
    for more in (0, offsets[1], whole - 1):
        assert ask(broker, "t/#", from_=more).error.startswith(f"offset {more} is not kept any more")
    assert ask(broker, "t/#", from_=whole).rows[0]["offset"] == whole
    # a cursor
    cursor = {"topic": "t/#", "offset": offsets[0]}
    assert broker.call("/v1/cursors/one", "PUT", json.dumps(cursor))[0] == 410
    status, told = broker.call("/v1/cursors/one", "PUT", json.dumps(cursor | {"deleted": [whole - 1]}))
    assert (status, json.loads(told)["offset"]) == (200, offsets[0])
    # a subscription
    for begin, count in (("earliest", len(offsets)), (str(offsets[0] - 1), len(offsets))):
        with Raw(broker.ports["mqtt"], "reader") as reader:
            reader.subscribe("t/#", user=(("from", begin), ("offsets", "true")))
            messages = [reader.message() for _ in range(count)]
        assert [int(one.user["offset"]) for one in messages] == offsets
        gaps = {one.user["gap-last"] for one in messages if "gap-last" in one.user}
        assert gaps == (set() if begin == "earliest" else {str(whole - 1)})
    broker.stop()
    ran = Ran("export", "t/#", "--journal", str(tmp_path / "journal"))
    assert (ran.code, [json.loads(line)["offset"] for line in ran.out.splitlines()]) == (0, offsets)


# -- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ({"from_": "yesterday"}, 'from="yesterday" is none of: an offset, a time such as 2026-01-31T12:00:00Z, '
                                 'how long ago, such as -5m, "earliest"'),
        ({"to": "earliest"}, 'to="earliest" is none of: an offset, a time such as 2026-01-31T12:00:00Z, '
                             "how long ago, such as -5m"),
        ({"from_": "-5"}, 'from="-5" is none of'), ({"from_": "-5 parsecs"}, 'from="-5 parsecs" is none of'),
        ({"from_": "2026-13-01"}, 'from="2026-13-01" is none of'), ({"from_": f"-{'9' * 400}w"}, "is none of"),
        ({"from_": "9" * 19 + "9"}, "there is no such offset"), ({"from_": "9" * 500}, "is none of"),
        ({"from_": 7, "to": 5}, "to=5 is before from=7"), ({"from_": "-1m", "to": "-2m"}, "to is before from"),
        ({"max_bytes": 0}, "max_bytes=0: from 1 B on"), ({"max_bytes": "many"}, "max_bytes: "),
        ({"format": "csv"}, "format='csv': there are arrow and json"),
        ({"form": "json"}, "unknown parameter 'form': there are from, to, deleted, max_bytes, max_records, format"),
    ],
)  # fmt: skip
def test_bad_parameters_are_one_clear_line(keeping: BrokerProcess, query: dict[str, object], error: str) -> None:
    answer = ask(keeping, "plain", **query)
    assert answer.status == 400, answer.body
    assert error in answer.error
    assert "\n" not in answer.error
    assert len(answer.error) < 200


@pytest.mark.parametrize(
    ("topic", "status", "error"),
    [
        ("boats/1", 404, "boats/1 is not recorded; recorded is flights/jfk/#, flights/#, plain, big/#"),
        ("#", 404, "# is not recorded; "), ("+/jfk/#", 404, "is not recorded; "), ("$SYS/x", 404, "is not recorded; "),
        ("flights/#/x", 400, "#"), ("flights\0", 400, "NUL"), ("flights/x+", 400, "+"),
    ],
)  # fmt: skip
def test_topics_that_are_not_recorded(keeping: BrokerProcess, topic: str, status: int, error: str) -> None:
    answer = ask(keeping, topic)
    assert (answer.status, "\n" in answer.error) == (status, False)
    assert error in answer.error


def test_without_a_journal_nothing_is_recorded(broker: BrokerProcess) -> None:
    assert broker.get("/v1/topics") == {"topics": []}
    answer = ask(broker, "a")
    assert answer.status == 404
    assert answer.error == (
        "a is not recorded; recorded is nothing (a [[topic]] with keep is; or start the broker with --record)"
    )


def test_without_pyarrow_there_are_json_lines(start: BrokerFactory, tmp_path: Path) -> None:
    (tmp_path / "pyarrow.py").write_text('raise ModuleNotFoundError("No module named pyarrow", name="pyarrow")\n')
    config = recording(tmp_path / "journal")
    broker = start(config, before=lambda: os.environ.__setitem__("PYTHONPATH", str(tmp_path)))
    with Raw(broker.ports["mqtt"], "publisher") as publisher:
        publisher.published("plain", b"x")
    answer = ask(broker, "plain")
    assert answer.status == 501
    assert answer.error == (
        "this broker has no pyarrow, so it cannot answer in Arrow: pip install 'headway[telemetry]' "
        "(format=json works without)"
    )
    assert [row["payload"] for row in ask(broker, "plain", format="json").rows] == ["x"]
    broker.stop()


# -- which there are --------------------------------------------------------------------------------------------------


def test_recorded_topics_are_listed(start: BrokerFactory, tmp_path: Path) -> None:
    config = recording(tmp_path / "journal")
    broker = start(config)
    with Raw(broker.ports["mqtt"], "publisher") as publisher:
        publisher.published("plain", b"x" * 1000)
        publisher.published("plain", b"y" * 1000)
    found = {one["filter"]: one for one in broker.get("/v1/topics")["topics"]}
    assert list(found) == ["flights/jfk/#", "flights/#", "plain", "big/#"]
    plain, empty = found["plain"], found["big/#"]
    rows = ask(broker, "plain").rows
    assert (plain["key"], plain["keep"], empty["key"], empty["keep"]) == ("/tailnum", "7 d or 10 GB", "topic", "7 d")
    assert (plain["earliest"], plain["latest"]) == (rows[0]["offset"], rows[-1]["offset"] + 1)
    assert 2000 < plain["bytes"] < 3000
    assert [datetime.fromisoformat(plain[name]) for name in ("first_time", "last_time")] == pytest.approx(
        [row["timestamp"] for row in rows], abs=timedelta(milliseconds=1)
    )
    assert (empty["earliest"], empty["latest"], empty["bytes"], empty["first_time"]) == (1, 1, 0, None)
    assert ask(broker, "big/#").rows == []
    broker.stop()


# -- clients that do not read -----------------------------------------------------------------------------------------


def test_who_does_not_read_costs_little_and_is_forgotten_when_it_goes(start: BrokerFactory, tmp_path: Path) -> None:
    broker = start(recording(tmp_path / "journal"))
    with Raw(broker.ports["mqtt"], "publisher") as publisher:
        for _ in range(48):
            publisher.published("big/a", b"x" * 900_000)
    assert len(ask(broker, "big/a", max_bytes="1MB").rows) == 1  # and Arrow is loaded by then
    before = broker.get("/v1/broker")["memory_rss_bytes"]
    address = ("127.0.0.1", urllib.parse.urlsplit(broker.admin).port)
    stuck = []
    for number in range(32):
        sock = socket.socket()
        sock.bind((f"127.0.0.{1 + number // 16}", 0))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(PATIENCE_S)
        sock.connect(address)
        sock.sendall(b"GET /v1/topics/big%2Fa/records HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert sock.recv(12) == b"HTTP/1.1 200"
        stuck.append(sock)
        if len(stuck) == 16:
            said = "16 answers with records are under way for address 127.0.0.1 already"
            busy = ask(broker, "big/a")
            assert (busy.status, busy.error) == (503, f"{said}, and the rest is for others; try again later")
    busy = ask(broker, "big/a")
    assert (busy.status, busy.error) == (503, "32 answers with records are under way already; try again later")
    grown = broker.get("/v1/broker")["memory_rss_bytes"] - before
    assert grown < 32 * 12 * MIB, f"each has {grown / 32:.0f} bytes of 43 MB"
    for sock in stuck:
        sock.close()
    answer = until(lambda: (found := ask(broker, "big/a")).status == 200 and found, what="there is room again")
    assert len(answer.rows) == 48
    broker.stop()
