"""Receipts over sockets: what publishers of both protocols are told about one record."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.interop.amqp_broker import AmqpBroker
from tests.interop.amqp_pika import Pika, PikaFactory
from tests.interop.pahos import Paho, paho, properties
from tests.interop.process import BrokerProcess
from tests.interop.waiting import until

pytest_plugins = ("tests.interop.amqp_fixtures",)


@pytest.fixture
def mqtt(amqp_broker: AmqpBroker) -> int:
    assert amqp_broker.mqtt_port is not None
    return amqp_broker.mqtt_port


def ask(publisher: Paho, topic: str, qos: int = 0, *, receipt: str = "20s", answer: str | None = None) -> None:
    said: dict[str, Any] = {"UserProperty": [("receipt", receipt)]}
    if answer is not None:
        said |= {"ResponseTopic": answer, "CorrelationData": b"4711"}
    publisher.publish(topic, "payload", qos, properties=properties("PUBLISH", **said))


def told(client: Paho, count: int = 1) -> list[dict[str, Any]]:
    return [json.loads(message.payload) for message in client.wait(count)]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_who_got_it(mqtt: int, name: str, qos: int) -> None:
    with paho(mqtt, name) as publisher, paho(mqtt, f"{name}-1") as one, paho(mqtt, f"{name}-2") as other:
        publisher.subscribe(f"{name}/receipts", 1)
        one.subscribe(f"{name}/a", qos)
        other.subscribe(f"{name}/#", qos)
        ask(publisher, f"{name}/a", qos, answer=f"{name}/receipts")
        (receipt,) = told(publisher)
        figures = {word: receipt[word] for word in ("client", "state", "owed", "got", "waiting", "why", "timeout_ms")}
        assert figures == {"client": name, "state": "complete", "owed": 2, "got": 2, "waiting": 0, "why": {},
                           "timeout_ms": 20_000}  # fmt: skip
        assert publisher.messages[0].properties.CorrelationData == b"4711"  # type: ignore[union-attr]
        assert publisher.messages[0].qos == min(qos, 1)


def test_who_holds_it_and_who_is_away(mqtt: int, name: str) -> None:
    stays = properties("CONNECT", SessionExpiryInterval=60)
    with paho(mqtt, f"{name}-away", connect=stays) as away:
        away.subscribe(f"{name}/a", 1)
    with paho(mqtt, name) as publisher, paho(mqtt, f"{name}-holds") as holds:
        holds.client.manual_ack_set(True)
        holds.subscribe(f"{name}/a", 1)
        publisher.subscribe(f"$SYS/headway/receipt/{name}")
        ask(publisher, f"{name}/a", 1, receipt="1s")
        (receipt,) = told(publisher)
        assert (receipt["state"], receipt["owed"], receipt["waiting"]) == ("timed_out", 2, 2)
        ask(publisher, f"{name}/a", 1, receipt="1m")
        for job in holds.wait(2):
            holds.client.ack(job.mid, job.qos)
        with paho(mqtt, f"{name}-away", clean=False, connect=stays) as away:
            away.wait(2)
            assert told(publisher, 2)[1]["got"] == 2


def test_nobody_is_owed_it(mqtt: int, name: str) -> None:
    with paho(mqtt, name) as publisher:
        publisher.subscribe(f"$SYS/headway/receipt/{name}")
        ask(publisher, f"{name}/nobody")
        assert told(publisher)[0]["owed"] == 0
        ask(publisher, f"{name}/nobody", 1, receipt="soon")
        refused = told(publisher, 2)[1]
        assert refused["state"] == "refused"
        assert "takes a duration such as 30s" in refused["text"]


def test_neighbours_in_one_read_have_receipts_of_their_own(mqtt: int, name: str) -> None:
    with paho(mqtt, name) as publisher, paho(mqtt, f"{name}-1") as one:
        publisher.subscribe(f"{name}/receipts", 1)
        one.subscribe(f"{name}/a")
        for _ in range(10):
            ask(publisher, f"{name}/a", answer=f"{name}/receipts")
        sequences = [receipt["sequence"] for receipt in told(publisher, 10)]
        assert len(set(sequences)) == 10
        assert [message.payload for message in one.wait(10)] == [b"payload"] * 10


def test_it_is_conflated(mqtt: int, name: str) -> None:
    with paho(mqtt, name) as publisher, paho(mqtt, f"{name}-1") as one:
        publisher.subscribe(f"{name}/receipts", 1)
        one.subscribe(f"{name}/a", 0, properties=properties("SUBSCRIBE", UserProperty=[("conflate", "1s")]))
        for _ in range(3):
            ask(publisher, f"{name}/a", 1, answer=f"{name}/receipts")
        figures = [(receipt["got"], receipt["conflated"], receipt["why"]) for receipt in told(publisher, 3)]
        assert sorted(figures) == [(0, 1, {"conflated": 1}), (0, 1, {"conflated": 1}), (1, 0, {})]


# -- AMQP ------------------------------------------------------------------------------------------------------------


def test_amqp_acknowledged_rejected_and_waiting(headway: BrokerProcess, named: Pika, connect: PikaFactory, name: str
                                                ) -> None:  # fmt: skip
    other = connect()
    jobs, dead, reply_to = other.queue(f"{name}-jobs", {
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}-dead"
    }, exclusive=False, auto_delete=True), other.queue(f"{name}-dead"), named.queue(f"{name}-receipts")
    other.consume(jobs)
    for number, wait in enumerate(("20s", "20s", "1s")):
        named.put(jobs, str(number), headers={"x-headway-receipt": wait}, reply_to=reply_to, correlation_id=str(number))
    acked, rejected, _ = other.wait(3)
    other.ack(acked)
    other.channel.basic_reject(rejected.tag, requeue=False)
    named.consume(reply_to, auto_ack=True)
    answers = {delivery.properties.correlation_id: json.loads(delivery.body) for delivery in named.wait(3)}
    first, second, third = (answers[number] for number in "012")
    assert (first["owed"], first["got"]) == (1, 1)
    assert (second["owed"], second["dead_lettered"], second["why"]) == (1, 1, {"rejected": 1})
    assert (third["owed"], third["waiting"], third["state"]) == (1, 1, "timed_out")
    assert other.take(dead).body == b"1"


def test_amqp_direct_reply(headway: BrokerProcess, named: Pika, name: str) -> None:
    direct = "amq.rabbitmq.reply-to"
    queue = named.bound("amq.topic", f"{name}.a")
    got: list[bytes] = []
    named.out.basic_consume(direct, lambda _c, _m, _p, body: got.append(body), auto_ack=True)
    named.put(f"{name}.a", "x", exchange="amq.topic", headers={"x-headway-receipt": True}, reply_to=direct)
    named.take(queue)
    until(lambda: named.connection.process_data_events(0) or got)
    assert json.loads(got[0])["got"] == 1


def test_both_protocols_are_counted(headway: BrokerProcess, mqtt: int, named: Pika, name: str) -> None:
    queue = named.bound("amq.topic", f"{name}.a")
    with paho(mqtt, f"{name}-mqtt") as publisher:
        publisher.subscribe(f"{name}/a")
        publisher.subscribe(f"{name}/receipts")
        ask(publisher, f"{name}/a", 1, answer=f"{name}/receipts", receipt="1m")
        named.take(queue)
        publisher.wait(2)
        assert json.loads(publisher.messages[1].payload)["got"] == 2
    _, page = headway.call("/metrics")
    assert b'headway_receipts_closed_total{state="complete"} ' in page
    assert b"headway_receipts_asked_total " in page
