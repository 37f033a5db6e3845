"""A conflated topic as docs/STATE.md shows it, with paho, pika and a reader of server-sent events.

Who says nothing gets the latest of each key; who says otherwise, or was promised each record, gets every one; and
SIGHUP changes it for who is there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.interop.amqp_pika import Pika
from tests.interop.conftest import BrokerFactory
from tests.interop.pahos import Paho, paho, properties
from tests.interop.permitted import reload
from tests.interop.process import LISTENER, BrokerProcess
from tests.interop.test_interop_events import Stream
from tests.interop.waiting import until

STATE = Path(__file__).parents[2] / "docs" / "STATE.md"
AMQP = '[listeners.amqp]\nurl = "amqp://127.0.0.1:0"\n'
(SAMPLE,) = re.findall(r"## Conflated topics\n\n```toml\n(.*?)```", STATE.read_text(), re.DOTALL)
SYMBOLS = 3
UPDATES = 300
BY_TOPIC = "[[topic]] prices/#, every 500 ms"


@pytest.fixture
def broker(start: BrokerFactory) -> Iterator[BrokerProcess]:
    started = start(LISTENER + AMQP + SAMPLE)
    yield started
    started.stop()


def update(number: int) -> bytes:
    return json.dumps({"symbol": f"s{number % SYMBOLS}", "bid": number}).encode()


def publish(writer: Paho, first: int = 0) -> None:
    """Updates of a few keys on one topic, the last of each with QoS 1 like all before it."""
    infos = [writer.client.publish("prices/fx", update(number), 1) for number in range(first, first + UPDATES)]
    for info in infos:
        info.wait_for_publish(30)


def bids(payloads: list[bytes]) -> list[int]:
    return [json.loads(payload)["bid"] for payload in payloads]


def is_current(client: Paho, last: int) -> bool:
    return set(range(last - SYMBOLS + 1, last + 1)) <= set(bids([one.payload for one in client.messages]))


@pytest.mark.parametrize("version", [4, 5])
def test_who_says_nothing_gets_the_latest_and_who_says_off_gets_all(broker: BrokerProcess, version: int) -> None:
    with paho(broker.port, "desk", version) as desk, paho(broker.port, "audit", 5) as audit, \
            paho(broker.port, "kept", 4, clean=False) as kept, paho(broker.port, "writer", 5) as writer:  # fmt: skip
        desk.subscribe("prices/#", 1)
        audit.client.subscribe("prices/#", 1, properties=properties("SUBSCRIBE", UserProperty=[("conflate", "off")]))
        until(lambda: audit.granted)
        kept.subscribe("prices/#", 1)
        publish(writer)
        until(lambda: is_current(desk, UPDATES - 1), what="the latest of each key")
        for each in (audit, kept):
            assert bids([one.payload for one in each.wait(UPDATES)]) == list(range(UPDATES))
        got = bids([one.payload for one in desk.messages])
        assert len(got) < UPDATES, "conflated"
        assert got == sorted(got), "each key only rises, and so does all of it"
        row = broker.consumer("desk")
        assert (row["state"], row["conflated_by"]) == ("conflating", BY_TOPIC)
        assert broker.consumer("audit")["conflated_by"] == broker.consumer("kept")["conflated_by"] == ""
        assert broker.get("/v1/why/desk")["conflated"] == [{"filter": "prices/#", "by": BY_TOPIC}]
        assert broker.get("/v1/why/audit")["conflated"] == []


def test_over_amqp_consumers_of_topics_are_conflated_and_queues_are_not(broker: BrokerProcess) -> None:
    with closing(Pika(broker.ports["amqp"])) as topics, closing(Pika(broker.ports["amqp"])) as queues, \
            paho(broker.port, "writer", 5) as writer:  # fmt: skip
        topics.consume("amq.topic", auto_ack=True, arguments={"x-headway-topics": "prices.#"})
        queue = queues.bound("amq.topic", "prices.#")
        queues.consume(queue, auto_ack=True)
        publish(writer)
        assert bids([one.body for one in queues.wait(UPDATES)]) == list(range(UPDATES))
        got: list[int] = []
        while not set(range(UPDATES - SYMBOLS, UPDATES)) <= set(got):
            got += bids([one.body for one in topics.wait(1)])
        assert len(got) < UPDATES


def test_server_sent_events_are_conflated(broker: BrokerProcess) -> None:
    with closing(Stream(broker, "prices/#")) as stream, closing(Stream(broker, "prices/#", conflate="off")) as every, \
            paho(broker.port, "writer", 5) as writer:  # fmt: skip
        stream.until("snapshot_end"), every.until("snapshot_end")
        publish(writer)
        got: list[int] = []
        while not set(range(UPDATES - SYMBOLS, UPDATES)) <= set(got):
            got += [json.loads(one.data["payload"])["bid"] for one in stream.take(1) if not one.name]
        assert len(got) < UPDATES
        assert [json.loads(one.data["payload"])["bid"] for one in every.take(UPDATES)] == list(range(UPDATES))


def test_a_reload_changes_it_for_who_is_there(broker: BrokerProcess) -> None:
    with paho(broker.port, "desk", 4) as desk, paho(broker.port, "writer", 5) as writer:
        desk.subscribe("prices/#", 1)
        reload(broker, LISTENER + AMQP + SAMPLE.replace('conflate = "500ms"\n', ""))
        until(lambda: broker.consumer("desk")["conflated_by"] == "", what="every record")
        publish(writer)
        assert bids([one.payload for one in desk.wait(UPDATES)]) == list(range(UPDATES))
        reload(broker, LISTENER + AMQP + SAMPLE)
        until(lambda: broker.consumer("desk")["conflated_by"] == BY_TOPIC, what="conflated again")
        desk.messages.clear()
        publish(writer, UPDATES)
        until(lambda: is_current(desk, 2 * UPDATES - 1), what="the latest of each key")
        assert len(desk.messages) < UPDATES
