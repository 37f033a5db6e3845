"""Live pages and kept aggregates, with paho, pika and a reader of server-sent events: each has the page that a query
has, while others write."""

from __future__ import annotations

import json
import random
from contextlib import closing
from typing import Any

import pytest
from tests.interop.amqp_pika import Pika
from tests.interop.conftest import BrokerFactory
from tests.interop.pahos import Paho, paho, properties
from tests.interop.process import LISTENER, BrokerProcess
from tests.interop.test_interop_events import Stream
from tests.interop.test_interop_state import ask
from tests.interop.view_stories import TOPIC
from tests.interop.waiting import until

AMQP = '[listeners.amqp]\nurl = "amqp://127.0.0.1:0"\n'
PAGE = {"order_by": "/delay DESC", "top": "5", "skip": "2"}
ROWS = {"select": "/carrier, avg(/delay) AS delay, count(*) AS flights", "group_by": "/carrier"}


@pytest.fixture(scope="module")
def keyed(start: BrokerFactory) -> BrokerProcess:
    return start(LISTENER + AMQP + TOPIC)


class Image:
    """What one client knows: records by their keys. It is told of each thing, and knows nothing else."""

    def __init__(self) -> None:
        self.records: dict[str, dict[str, Any]] = {}
        self.marks = 0

    def take(self, event: str, key: str | None, payload: bytes) -> None:
        if event.startswith("snapshot_"):
            self.marks += 1
            if event == "snapshot_begin":
                self.records = {}
        elif event == "out_of_focus":
            self.records.pop(str(key), None)
        else:
            record = json.loads(payload)
            self.records[str(record.get("tailnum") or record["carrier"])] = record

    @property
    def rows(self) -> list[dict[str, Any]]:
        return sorted(self.records.values(), key=json.dumps)


class PahoReader(Image):
    def __init__(self, client: Paho, **options: str) -> None:
        super().__init__()
        self.client = client
        self.done = 0
        client.client.subscribe("flights/#", 1, properties=properties("SUBSCRIBE", UserProperty=list(options.items())))

    def read(self) -> list[dict[str, Any]]:
        for message in self.client.messages[self.done :]:
            self.done += 1
            user = dict(getattr(message.properties, "UserProperty", []))
            self.take(user.get("headway-event", ""), user.get("headway-key"), message.payload)
        return self.rows


class PikaReader(Image):
    def __init__(self, client: Pika, **options: str) -> None:
        super().__init__()
        self.client = client
        self.done = 0
        arguments = {"x-headway-topics": "flights.#"} | {f"x-headway-{name}": text for name, text in options.items()}
        client.consume("amq.topic", auto_ack=True, arguments=arguments)

    def read(self) -> list[dict[str, Any]]:
        self.client.connection.process_data_events(0)
        for one in self.client.got[self.done :]:
            self.done += 1
            headers = one.headers
            self.take(headers.get("headway-event", ""), headers.get("headway-key"), one.body)
        return self.rows


def wanted(broker: BrokerProcess, **options: Any) -> list[dict[str, Any]]:
    answer = ask(broker, "flights/#", options).json
    rows = [json.loads(one["payload"]) for one in answer["records"]] if "select" not in options else answer["records"]
    return sorted(rows, key=json.dumps)


@pytest.mark.parametrize("options", [PAGE, ROWS, PAGE | {"conflate": "200ms"}], ids=["page", "rows", "conflated"])
def test_each_client_has_what_a_query_has_at_the_end(keyed: BrokerProcess, options: dict[str, str]) -> None:
    chance = random.Random(7)
    asked = {name: value for name, value in options.items() if name != "conflate"}
    with (
        paho(keyed.ports["mqtt"], "publisher") as publisher, paho(keyed.ports["mqtt"], "watcher") as watcher,
        closing(Pika(keyed.ports["amqp"])) as channel, closing(Stream(keyed, **options)) as stream,
    ):  # fmt: skip
        readers = [PahoReader(watcher, **options), PikaReader(channel, **options)]
        for number in range(300):
            key = f"N{chance.randrange(40)}"
            if chance.random() < 0.15:
                said = properties("PUBLISH", UserProperty=[("key", key)])
                publisher.publish("flights/a", b"", int(number == 299), properties=said)
                continue
            record = {"tailnum": key, "delay": chance.randrange(100), "carrier": chance.choice(["UA", "DL", "AA"])}
            publisher.publish("flights/a", json.dumps(record).encode(), int(number == 299))
        truth = wanted(keyed, **asked)
        for reader in readers:
            until(lambda reader=reader: reader.read() == truth, what=f"{reader.rows} to be {truth}")  # type: ignore[misc]
            assert reader.marks == 2
        events, image = stream.events, Image()
        while image.marks < 2 or image.rows != truth:
            one = next(events)
            image.take(one.name, one.data.get("key"), str(one.data.get("payload")).encode())


def test_a_page_that_makes_no_sense_is_one_clear_error_over_each_protocol(keyed: BrokerProcess) -> None:
    with paho(keyed.ports["mqtt"], "watcher") as client:
        said = properties("SUBSCRIBE", UserProperty=[("order_by", "/delay")])
        (code,) = client.subscribe("flights/#", 0, properties=said)
        assert code.is_failure
    with closing(Stream(keyed, order_by="/delay")) as stream:
        assert stream.answer.status == 400
    with closing(Pika(keyed.ports["amqp"])) as channel, channel.refused(406):
        PikaReader(channel, order_by="/delay")
