"""The state over HTTP: the latest record per key, filtered, ordered, a page of it, in each format."""

from __future__ import annotations

import base64
import http.client
import io
import json
import socket
import subprocess
import urllib.parse
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from tests.interop.command import headway
from tests.interop.conftest import BrokerFactory
from tests.interop.pahos import paho, properties
from tests.interop.permitted import SECRET, config, permission
from tests.interop.permitted import paho as login
from tests.interop.process import LISTENER, BrokerProcess
from tests.interop.raw import Raw
from tests.interop.view_stories import TOPIC
from tests.interop.waiting import PATIENCE_S, until

from headway.core.message.record import Properties


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def delays(self) -> list[int]:
        assert self.status == 200, self.body
        return [json.loads(one["payload"])["delay"] for one in self.json["records"]]


def ask(broker: BrokerProcess, filter: str, query: dict[str, object], **headers: str) -> Answer:
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(broker.admin).netloc, timeout=PATIENCE_S)
    path = f"/v1/state/{urllib.parse.quote(filter)}?{urllib.parse.urlencode(query)}"
    connection.request("GET", path, headers=headers)
    with connection.getresponse() as answer:
        return Answer(answer.status, dict(answer.headers), answer.read())


@pytest.fixture(scope="module")
def keyed(start: BrokerFactory) -> BrokerProcess:
    broker = start(LISTENER + TOPIC)
    with paho(broker.ports["mqtt"], "publisher") as client:
        for number in [*range(200), 7]:
            carrier = "ua" if number % 2 else "dl"
            payload = {"tailnum": f"N{number}", "delay": (number * 37) % 200, "carrier": carrier}
            client.publish(f"flights/{carrier}", json.dumps(payload).encode(), 1)
    return broker


def test_a_page_in_an_order(keyed: BrokerProcess) -> None:
    wanted = sorted(((number * 37) % 200 for number in range(1, 200, 2)), reverse=True)
    where = "carrier = 'ua' AND delay > 10"
    answer = ask(keyed, "flights/#", {"where": where, "order_by": "/delay DESC", "top": 20, "skip": 5})
    assert answer.delays == wanted[5:25]
    assert (answer.json["offset"], answer.json["keys"], answer.json["evicted_keys"]) == (201, 200, 0)
    assert answer.headers["Headway-Offset"] == "201"
    assert ask(keyed, "flights/ua", {"order_by": "/delay", "top": 3}).delays == wanted[::-1][:3]
    assert ask(keyed, "flights/ua", {"order_by": "offset DESC", "top": 1}).delays == [7 * 37 % 200]


def test_all_of_it_in_each_format(keyed: BrokerProcess) -> None:
    whole = ask(keyed, "flights/#", {}).json["records"]
    assert {one["key"] for one in whole} == {f"N{number}" for number in range(200)}
    offsets = [one["offset"] for one in whole]
    assert offsets == sorted(offsets)
    by_name: dict[str, object] = {"format": "jsonl"}
    for answer in (ask(keyed, "flights/#", by_name), ask(keyed, "flights/#", {}, Accept="application/x-ndjson")):
        assert [json.loads(line) for line in answer.body.splitlines()] == whole
    arrow = ask(keyed, "flights/#", {}, Accept="text/html, application/vnd.apache.arrow.stream;q=0.9")
    with pa.ipc.open_stream(io.BytesIO(arrow.body)) as reader:
        table = reader.read_all()
    assert table.column("offset").to_pylist() == offsets
    assert [payload.decode() for payload in table.column("payload").to_pylist()] == [one["payload"] for one in whole]
    assert reader.schema.metadata[b"headway.offset"] == b"201"


@pytest.mark.parametrize(
    ("filter", "query", "status", "words"),
    [
        ("flights/#", {"orderby": "/x"}, 400, "there is no orderby; did you mean order_by?"),
        ("flights/#", {"desk": "7"}, 400, "there is no desk; there is: selector, where, "),
        ("flights/#", {"top": "-1"}, 400, "option top='-1': takes a number from 0 on"),
        ("flights/#", {"conflate": "1s"}, 400, "option conflate is for subscriptions to topics"),
        ("flights/#", {"where": "delay = ;"}, 400, "selector, character 9"),
        ("flights/#", {"where": "(" * 2000}, 400, "selector, character"),
        ("flights/#", {"where": "a = 1", "selector": "a = 1"}, 400, "each option once"),
        ("flights/#", {"order_by": "delay", "top": 1}, 400, "is none of: a JSON pointer such as /delay"),
        ("flights/#", {"order_by": "/delay"}, 400, "a page of at most 10,000 records: say top"),
        ("flights/#", {"select": "delay"}, 400, "select: 'delay' is none of: a JSON pointer such as /delay"),
        ("flights/#", {"group_by": "/carrier"}, 400, "group_by: say select, too"),
        ("flights/#", {"select": "/carrier", "format": "arrow"}, 400, "in Arrow are 10,000 at most"),
        ("flights/#", {"select": "/a, sum(/b)"}, 400, "'/a' is neither in group_by nor in an aggregate"),
        ("flights/#", {"format": "xml"}, 400, "format='xml': there are json, jsonl, arrow"),
        ("flights/#/x", {}, 400, "'#' must be the whole of the last level"),
        ("trains/#", {}, 404, "trains/# has no state: no keyed [[topic]] covers it"),
    ],
)
def test_what_cannot_be_answered_is_one_clear_error(
    keyed: BrokerProcess, filter: str, query: dict[str, object], status: int, words: str
) -> None:
    answer = ask(keyed, filter, query)
    assert (answer.status, words in answer.json["error"]) == (status, True), answer.body


def test_an_order_is_kept_for_the_next_page(start: BrokerFactory) -> None:
    """A page of an order that is up to date looks at nothing; one that is not looks at the changes."""
    broker = start(LISTENER + TOPIC)
    page: dict[str, object] = {"order_by": "/delay DESC", "top": 2}
    with paho(broker.ports["mqtt"], "publisher") as client:
        for number in range(300):
            client.publish("flights/x", json.dumps({"tailnum": f"N{number}", "delay": number}).encode(), 1)
        first = ask(broker, "flights/#", page)
        assert first.delays == [299, 298]
        second = ask(broker, "flights/#", page | {"skip": 1})
        assert (second.delays, second.json["looked_at"]) == ([298, 297], 0)
        client.publish("flights/x", b'{"tailnum": "N299", "delay": 1}', 1)
        client.publish("flights/x", b'{"tailnum": "N7", "delay": 500}', 1)
        third = ask(broker, "flights/#", page)
        assert (third.delays, third.json["offset"]) == ([500, 298], 302)
        assert third.json["looked_at"] <= 2
    assert ask(broker, "flights/#", page | {"where": "delay < 3"}).delays == [2, 1], "it has an order of its own"


def test_columns_and_aggregates_in_each_format(keyed: BrokerProcess) -> None:
    columns: dict[str, object] = {
        "select": "key, /delay, /carrier AS by, /nothing", "order_by": "/delay DESC", "top": 2,
    }  # fmt: skip
    groups: dict[str, object] = {
        "select": "/carrier, count(*) AS flights, avg(/delay) AS delay, max(/delay)", "group_by": "/carrier",
        "order_by": "flights, carrier DESC",
    }  # fmt: skip
    whole = {"dl": [number * 37 % 200 for number in range(0, 200, 2)], "ua": [n * 37 % 200 for n in range(1, 200, 2)]}
    rows = [
        {"carrier": name, "flights": 100, "delay": sum(delays) / 100, "max(/delay)": max(delays)}
        for name, delays in sorted(whole.items(), reverse=True)
    ]
    top = [{"key": "N27", "delay": 199, "by": "ua", "nothing": None}, {"key": "N54", "delay": 198, "by": "dl",
           "nothing": None}]  # fmt: skip
    for query, expected in ((columns, top), (groups, rows)):
        answer = ask(keyed, "flights/#", query).json
        assert (answer["records"], answer["columns"]) == (expected, list(expected[0]))
        lines = ask(keyed, "flights/#", query | {"format": "jsonl"}).body.splitlines()
        assert [json.loads(line) for line in lines] == expected
        with pa.ipc.open_stream(io.BytesIO(ask(keyed, "flights/#", query | {"format": "arrow"}).body)) as reader:
            table = reader.read_all()
        assert table.to_pylist() == expected
        assert reader.schema.metadata[b"headway.offset"] == b"201"
    assert [str(field.type) for field in table.schema] == ["string", "int64", "double", "int64"]
    none = ask(keyed, "flights/#", {"select": "/delay", "where": "delay > 1000", "format": "arrow", "top": 3})
    with pa.ipc.open_stream(io.BytesIO(none.body)) as reader:
        assert (reader.read_all().num_rows, reader.schema.names) == (0, ["delay"])


def query(broker: BrokerProcess, *words: str) -> subprocess.CompletedProcess[str]:
    return headway("query", *words, "--admin", broker.admin, COLUMNS="100")


def test_in_the_terminal(keyed: BrokerProcess) -> None:
    words = ("flights/#", "--where", "delay > 15", "--order-by", "/delay DESC", "--top", "3")
    shown = query(keyed, *words)
    assert (shown.returncode, shown.stderr) == (0, "")
    heading, *rows, foot = shown.stdout.splitlines()
    assert heading.split() == ["TOPIC", "KEY", "tailnum", "delay", "carrier"]
    assert [row.split()[3] for row in rows] == ["199", "198", "197"]
    assert foot.strip() == "3 records of 200 keys, as of offset 201"
    select = ("--select", "/carrier, count(*) AS flights", "--group-by", "/carrier")
    heading, *rows, foot = query(keyed, "flights/#", *select).stdout.splitlines()
    assert (heading.split(), [row.split() for row in rows]) == (["carrier", "flights"], [["dl", "100"], ["ua", "100"]])
    assert foot.strip() == "2 rows of 200 keys, as of offset 201"
    lines = query(keyed, *words, "--format", "jsonl").stdout.splitlines()
    assert [json.loads(json.loads(line)["payload"])["delay"] for line in lines] == [199, 198, 197]
    assert len(json.loads(query(keyed, *words, "--format", "json").stdout)["records"]) == 3


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("flights/#", "--where", "delay > 1000"), 1, ""),
        (("flights/#", "--where", "delay = ;"), 2, "headway: selector, character 9"),
        (("flights/#", "--order-by", "delay"), 2, "is none of: a JSON pointer such as /delay"),
        (("trains/#",), 2, "headway: trains/# has no state: no keyed [[topic]] covers it"),
        (("flights/#", "--format", "xml"), 2, "headway: --format xml: there are table, json, jsonl"),
        (("flights/#", "--at", "1"), 2, "at: flights/# is not recorded; recorded is nothing"),
        (("flights/#", "--at", "1", "--watch"), 2, "headway: --watch shows the state as it is now: without --at"),
        (("flights/#", "--format", "json", "--watch"), 2, "headway: --watch draws a table: without --format json"),
    ],
)
def test_in_the_terminal_a_mistake_is_one_line(
    keyed: BrokerProcess, words: tuple[str, ...], code: int, said: str
) -> None:
    shown = query(keyed, *words)
    assert (shown.returncode, said in shown.stderr, shown.stderr.count("\n")) == (code, True, int(bool(said)))


def test_who_may_not_subscribe_may_not_query(start: BrokerFactory) -> None:
    broker = start(config(permission("alice", publish=["flights/#"], subscribe=["flights/ua"]), more=TOPIC))
    with closing(login(broker, "alice")) as client:
        client.publish("flights/ua", b'{"tailnum": "N1", "delay": 3}', 1)
    alice = f"Basic {_basic('alice')}"
    assert ask(broker, "flights/ua", {}, Authorization=alice).delays == [3]
    answer = ask(broker, "flights/#", {}, Authorization=alice)
    assert (answer.status, "alice may not subscribe to 'flights/#'" in answer.json["error"]) == (403, True)


def _basic(user: str) -> str:
    return base64.b64encode(f"{user}:{SECRET}".encode()).decode()


def test_one_that_does_not_read_its_answers_leaves_room_for_others(start: BrokerFactory) -> None:
    """Its queries are counted by its address; each ends with its connection."""
    broker = start(LISTENER + TOPIC)
    with Raw(broker.ports["mqtt"], "publisher") as publisher:
        for number in range(3000):
            publisher.publish("flights/x", json.dumps({"tailnum": f"N{number}", "fill": "." * 5000}).encode())
        publisher.published("flights/x", b"{}")
    where = urllib.parse.urlsplit(broker.admin)
    with ExitStack() as stack:
        for _ in range(4):
            sock = stack.enter_context(socket.create_connection((where.hostname, where.port)))
            sock.sendall(b"GET /v1/state/flights/%23 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert sock.recv(12) == b"HTTP/1.1 200"
        answer = ask(broker, "flights/#", {"top": 1})
        assert (answer.status, "of address 127.0.0.1" in answer.body.decode()) == (429, True)
    until(lambda: ask(broker, "flights/#", {"top": 1}).status == 200, what="their connections are over")


def test_what_was_deleted_is_gone_also_after_a_restart(start: BrokerFactory, tmp_path: Path) -> None:
    journal = f'[journal]\npath = "{tmp_path / "journal"}"\n'
    config = LISTENER + journal + TOPIC + 'keep = "1d"\n'
    broker = start(config)
    with paho(broker.ports["mqtt"], "viewer") as viewer, Raw(broker.ports["mqtt"], "publisher") as publisher:
        viewer.subscribe("flights/#", 1)
        for tail in "abc":
            publisher.published("flights/x", json.dumps({"tailnum": tail, "delay": 0}).encode())
        publisher.published("flights/x", b"", properties=Properties(user=(("key", "b"),)))
        until(lambda: len(viewer.messages) == 4, what="the viewer has the delete")
        marks = dict(viewer.messages[-1].properties.UserProperty)
        assert marks == {"key": "b", "headway-event": "delete", "headway-key": "b"}

    def keys(broker: BrokerProcess) -> list[str]:
        return [one["key"] for one in ask(broker, "flights/#", {}).json["records"]]

    assert keys(broker) == ["a", "c"]
    broker.stop()
    again = start(config)
    assert keys(again) == ["a", "c"]
    again.stop()


def test_a_query_over_mqtt(keyed: BrokerProcess) -> None:
    with paho(keyed.ports["mqtt"], "asker") as asker:
        for _ in range(2):
            asker.messages.clear()
            options = properties("SUBSCRIBE", UserProperty=[("query", "true"), ("selector", "delay > 150")])
            asker.subscribe("flights/#", 1, properties=options)
            until(lambda: asker.messages and told(asker.messages[-1]).get("headway-event") == "snapshot_end",
                  what="the end mark")  # fmt: skip
            begin, *records, end = map(told, asker.messages)
            assert begin["headway-event"] == "snapshot_begin"
            assert begin["headway-offset"] == end["headway-offset"]
            wanted = {f"N{number}" for number in range(200) if (number * 37) % 200 > 150}
            assert {one["headway-key"] for one in records} == wanted
            assert end["headway-records"] == str(len(wanted))


def told(message: Any) -> dict[str, str]:
    """Returns the user properties of a message."""
    return dict(getattr(message.properties, "UserProperty", ()))
