"""Server-sent events: the state, an end mark, then live records; nothing lost or doubled; slow clients like others."""

from __future__ import annotations

import http.client
import json
import random
import signal
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any, NamedTuple

import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.pahos import paho, properties
from tests.interop.process import LISTENER, BrokerProcess
from tests.interop.raw import Raw
from tests.interop.test_interop_state import ask
from tests.interop.view_stories import TOPIC
from tests.interop.waiting import PATIENCE_S, until


class Event(NamedTuple):
    name: str
    id: str
    data: dict[str, Any]


class Stream:
    """A client that reads events as the HTML standard says."""

    def __init__(self, broker: BrokerProcess, filter: str = "flights/#", last: str = "", **query: str) -> None:
        self.connection = http.client.HTTPConnection(urllib.parse.urlsplit(broker.admin).netloc, timeout=PATIENCE_S)
        path = f"/v1/state/{urllib.parse.quote(filter, safe='')}?{urllib.parse.urlencode(query)}"
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
        headers |= {"Authorization": broker.basic} if broker.login else {}
        self.connection.request("GET", path, headers=headers)
        self.answer = self.connection.getresponse()
        self.events = self._read()

    def _read(self) -> Iterator[Event]:
        fields: dict[str, str] = {}
        while line := self.answer.readline().decode():
            name, _, value = line.rstrip("\n").partition(": ")
            if line != "\n":
                fields[name] = value
            elif "data" in fields:
                yield Event(fields.get("event", ""), fields.get("id", ""), json.loads(fields["data"]))
                fields = {}
            else:
                fields = {}

    def until(self, name: str) -> list[Event]:
        """Returns the events up to one of this name, without it."""
        found = []
        for one in self.events:
            if one.name == name:
                self.mark = one.data
                return found
            found.append(one)
        raise AssertionError(f"it is over: {found[-3:]}")

    def take(self, count: int) -> list[Event]:
        return [next(self.events) for _ in range(count)]

    def close(self) -> None:
        self.answer.close()
        self.connection.close()


def image(events: list[Event]) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in events:
        if one.name == "delete":
            found.pop(one.data["key"], None)
        elif not one.name:
            found[one.data["key"]] = json.loads(one.data["payload"])["delay"]
    return found


def update(number: int, delay: int) -> bytes:
    return json.dumps({"tailnum": f"N{number}", "delay": delay}).encode()


@pytest.fixture(scope="module")
def keyed(start: BrokerFactory) -> BrokerProcess:
    return start(LISTENER + TOPIC)


def test_the_state_then_what_changes_it(keyed: BrokerProcess) -> None:
    with paho(keyed.ports["mqtt"], "publisher") as client:
        for number in range(3):
            client.publish("flights/a", update(number, number), 1)
        with closing(Stream(keyed)) as stream:
            assert stream.answer.headers["Content-Type"] == "text/event-stream"
            assert stream.until("snapshot_begin") == []
            assert (stream.mark["keys"], stream.mark["evicted"]) == (3, 0)
            as_of = stream.mark["offset"]
            state = stream.until("snapshot_end")
            assert image(state) == {"N0": 0, "N1": 1, "N2": 2}
            assert [int(one.id) for one in state] == [one.data["offset"] for one in state]
            assert (stream.mark["records"], stream.mark["missing"], stream.mark["offset"]) == (3, 0, as_of)
            client.publish("flights/a", "line\nbreak \u00e9\r\n\r\ndata: x", 1,
                           properties=properties("PUBLISH", UserProperty=[("desk", "7\nevent: x")]))  # fmt: skip
            client.publish("flights/a", b"\xff\x00", 1)
            client.publish("flights/a", update(1, 10), 1)
            client.publish("flights/a", update(2, 0), 1,
                           properties=properties("PUBLISH", UserProperty=[("delete", "1")]))  # fmt: skip
            hostile, binary, put, gone = stream.take(4)
        assert (hostile.name, hostile.data["payload"]) == ("", "line\nbreak \u00e9\r\n\r\ndata: x")
        assert ["desk", "7\nevent: x"] in hostile.data["properties"]["user"]
        assert binary.data["payload_base64"] == "/wA="
        assert (put.data["key"], put.data["topic"], image([put])) == ("N1", "flights/a", {"N1": 10})
        assert (gone.name, gone.data["key"]) == ("delete", "N2")
        for number in range(3):
            client.publish("flights/a", update(number, 99), 1)
    with closing(Stream(keyed, last=put.id)) as later:
        """It comes back: only what has changed since."""
        assert image([one for one in later.take(4) if not one.name]) == {"N0": 99, "N1": 99, "N2": 99}
    with closing(Stream(keyed, last=put.id, **{"from": "earliest"})) as again:
        """So does an EventSource, which repeats its address as it was."""
        assert image([one for one in again.take(4) if not one.name]) == {"N0": 99, "N1": 99, "N2": 99}
    with (
        closing(Stream(keyed, where="delay > 98 AND tailnum = 'N1'", out_of_focus="true")) as selected,
        paho(keyed.ports["mqtt"], "publisher") as client,
    ):
        assert image(selected.until("snapshot_end")) == {"N1": 99}
        client.publish("flights/a", update(1, 1), 1)
        (lost,) = selected.take(1)
        assert (lost.name, lost.data["key"], lost.data["payload"]) == ("out_of_focus", "N1", "")


def test_nothing_is_lost_or_doubled_between_the_state_and_live_records(start: BrokerFactory) -> None:
    broker, chance, truth = start(LISTENER + TOPIC), random.Random(3), dict[str, int]()
    with Raw(broker.ports["mqtt"], "publisher") as writer, ExitStack() as stack:
        streams: list[Stream] = []
        for number in range(4000):
            key = chance.randrange(300)
            truth[f"N{key}"] = number
            writer.publish("flights/a", update(key, number))
            if number % 200 == 199:
                streams.append(stack.enter_context(closing(Stream(broker))))
        writer.published("flights/last", update(1000, -1))
        for stream in streams:
            begun = stream.until("snapshot_begin")
            as_of = stream.mark["offset"]
            state, live = stream.until("snapshot_end"), []
            for one in stream.events:
                if one.data["topic"] == "flights/last":
                    break
                live.append(one)
            offsets = [int(one.id) for one in live]
            assert begun == []
            assert all(int(one.id) <= as_of for one in state)
            assert offsets == sorted(set(offsets)), "nothing twice"
            assert not offsets or offsets[0] > as_of
            last = [json.loads(one.data["payload"])["delay"] for one in live]
            assert last == list(range(4000 - len(last), 4000)), "nothing is missing"
            assert image(state + live) == truth


def test_a_client_that_does_not_read_is_a_slow_consumer(start: BrokerFactory) -> None:
    """It costs the broker no memory beyond its lane, others go on, and it can be ended as any client."""
    broker = start(LISTENER + TOPIC + '[pool]\nmemory = "16MB"\ndisk = "100MB"\n')
    with ExitStack() as stack:
        stuck = stack.enter_context(closing(Stream(broker, "flights/big")))
        reader = stack.enter_context(closing(Stream(broker, "flights/small")))
        reader.until("snapshot_end")
        writer = stack.enter_context(Raw(broker.ports["mqtt"], "publisher"))
        for number in range(3000):
            writer.publish("flights/big", json.dumps({"tailnum": "N1", "delay": number, "fill": "." * 8000}).encode())
        writer.published("flights/small", update(7, 7))
        assert image(reader.take(1)) == {"N7": 7}

        def lags() -> list[dict[str, Any]]:
            found = broker.get("/v1/consumers")["consumers"]
            return [one for one in found if one["filter"] == "flights/big" and one["lag_records"] > 1000]

        until(lambda: bool(lags()), what="it lags")
        (seen,) = lags()
        assert seen["client"].startswith("events/127.0.0.1/")
        pool = broker.get("/v1/broker")["pools"][0]
        assert pool["memory_bytes"] < 16_000_000
        stuck.until("snapshot_end")
        found = stuck.take(3000)
        assert [json.loads(one.data["payload"])["delay"] for one in found] == list(range(3000)), "all of it was there"
        client = urllib.parse.quote(seen["client"], safe="")
        assert broker.call(f"/v1/clients/{client}", "DELETE")[0] in (200, 202, 204)
        assert stuck.until("closed") == []
        assert stuck.mark["reason"]
        assert list(stuck.events) == [], "and then it is over"


def test_who_is_ended_in_the_middle_of_its_snapshot_is_told_so(start: BrokerFactory) -> None:
    """The event that is half sent is sent whole first."""
    broker = start(LISTENER + TOPIC)
    with Raw(broker.ports["mqtt"], "publisher") as writer:
        for number in range(2000):
            row = {"tailnum": f"N{number}", "delay": number, "fill": "." * 7001}
            writer.publish("flights/big", json.dumps(row).encode())
        writer.published("flights/big", update(0, 0))
    with closing(Stream(broker, "flights/big")) as stuck:
        (seen,) = until(lambda: broker.get("/v1/consumers")["consumers"], what="it is there")
        taken: list[int] = []

        def stands_still() -> bool:
            taken.append(broker.consumer(seen["client"])["delivered_records"])
            return taken[-1] > 0 and taken[-5:] == [taken[-1]] * 5

        until(stands_still, what="it takes no more")
        assert broker.call(f"/v1/clients/{urllib.parse.quote(seen['client'], safe='')}", "DELETE")[0] == 204
        stuck.until("snapshot_begin")
        assert 0 < len(stuck.until("closed")) < 2000
        assert stuck.mark["reason"] == "admin"


def test_the_end_of_the_broker_is_told(start: BrokerFactory) -> None:
    broker = start(LISTENER + TOPIC)
    with closing(Stream(broker, "flights/big")) as stream:
        stream.until("snapshot_end")
        broker.signal(signal.SIGTERM)
        assert stream.until("closed") == []
        assert stream.mark == {"reason": "shutdown", "text": "the server is shutting down"}
    broker.stop()


def test_a_subscription_that_is_deleted_ends_its_stream_and_says_why(start: BrokerFactory) -> None:
    rule = 'when = { lag_records = 1000 }\nthen = "delete_subscription"\n'
    broker = start(f'{LISTENER}{TOPIC}[[policy]]\nname = "delete"\n[[policy.rule]]\n{rule}')
    with closing(Stream(broker, "flights/big")) as stuck, Raw(broker.ports["mqtt"], "publisher") as writer:
        stuck.until("snapshot_end")
        for number in range(3000):
            writer.publish("flights/big", json.dumps({"tailnum": "N1", "delay": number, "fill": "." * 8000}).encode())
        until(lambda: not broker.get("/v1/consumers")["consumers"], what="the subscription ends")
        numbers = [json.loads(one.data["payload"])["delay"] for one in stuck.until("closed")]
        assert numbers == list(range(len(numbers)))
        assert stuck.mark["reason"] == "lag_records"
        assert "policy 'delete'" in stuck.mark["text"]


@pytest.mark.parametrize(
    ("filter", "query", "status", "words"),
    [
        ("flights/#", {"at": "3"}, 400, "an event stream has no 'at'; it has where, selector, conflate"),
        ("flights/#", {"skip": "3"}, 400, "a live page has 10,000 records at most: say top"),
        ("flights/#", {"where": "a = ;"}, 400, "selector, character"),
        ("flights/#", {"where": "a = 1", "selector": "a = 1"}, 400, "each option once"),
        ("flights/#", {"conflate": "soon"}, 400, "option conflate='soon': takes a duration"),
        ("trains/#", {}, 404, "trains/# has no state"),
        ("flights/#/x", {}, 400, "'#' must be the whole of the last level"),
    ],
)
def test_what_cannot_be_streamed_is_one_clear_error(
    keyed: BrokerProcess, filter: str, query: dict[str, object], status: int, words: str
) -> None:
    answer = ask(keyed, filter, query, Accept="text/event-stream")
    assert (answer.status, words in answer.json["error"]) == (status, True), answer.body


def test_sessions_of_clients_that_are_gone_end(keyed: BrokerProcess) -> None:
    until(lambda: not keyed.get("/v1/consumers")["consumers"], what="earlier ones are gone")
    streams = [Stream(keyed) for _ in range(32)]
    for stream in streams:
        stream.until("snapshot_end")
    assert ask(keyed, "flights/#", {}, Accept="text/event-stream").status == 429
    for stream in streams:
        stream.close()
    until(lambda: not keyed.get("/v1/consumers")["consumers"], what="they are gone")
