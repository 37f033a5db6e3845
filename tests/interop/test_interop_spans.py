"""Spans of a broker, at a collector that decodes them: over MQTT 5, AMQP 0-9-1, AMQP 1.0, STOMP and HTTP."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from itertools import count

import pytest
from proton import Message
from proton.utils import BlockingConnection
from tests.interop.amqp_pika import Pika
from tests.interop.amqp_pika import properties as amqp_properties
from tests.interop.conftest import BrokerFactory
from tests.interop.pahos import paho, properties
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.stomps import Client
from tests.interop.test_interop_writers import arrow, publish, stage
from tests.interop.waiting import PATIENCE_S, until
from tests.span_collector import SpanCollector, Told, span_collector

from headway.wire.mqtt.packets import TopicRequest

SPAN = 0xB7AD6B7169203331
STATE = "vendor=a:b"
CONFIG = """
[listeners.auto]
url = "auto://127.0.0.1:0"
[journal]
path = "{folder}"
[[topic]]
filter = "kept/#"
key = "topic"
keep = "1d"
[traces]
endpoint = "{url}"
headers = {{ authorization = "Bearer secret" }}
service = "orders"
"""
_traces = count(0x0AF7651916CD43DD8448EB211C80319C)


def a_trace(sampled: bool = True) -> tuple[int, dict[str, str]]:
    number = next(_traces)
    return number, {"traceparent": f"00-{number:032x}-{SPAN:016x}-0{int(sampled)}", "tracestate": STATE}


@pytest.fixture(scope="module")
def collector() -> Iterator[SpanCollector]:
    with span_collector() as one:
        yield one


@pytest.fixture(scope="module")
def house(start: BrokerFactory, collector: SpanCollector, tmp_path_factory: pytest.TempPathFactory) -> BrokerProcess:
    return start(CONFIG.format(folder=tmp_path_factory.mktemp("journal"), url=collector.url))


def by_mqtt(broker: BrokerProcess, topic: str, context: dict[str, str]) -> None:
    about = properties("PUBLISH")
    about.UserProperty = list(context.items())
    with paho(broker.port, "publisher") as client:
        client.publish(topic, b"hello", 1, properties=about)


def by_amqp(broker: BrokerProcess, topic: str, context: dict[str, str]) -> None:
    client = Pika(broker.port)
    client.out.basic_publish("amq.topic", topic.replace("/", "."), b"hello", amqp_properties(headers=context))
    client.close()


def by_amqp1(broker: BrokerProcess, topic: str, context: dict[str, str]) -> None:
    client = BlockingConnection(f"amqp://127.0.0.1:{broker.port}", timeout=PATIENCE_S)
    client.create_sender(f"topic://{topic.replace('/', '.')}").send(Message(b"hello", properties=context))
    client.close()


def by_stomp(broker: BrokerProcess, topic: str, context: dict[str, str]) -> None:
    client = Client(broker.port)
    client.send(f"/topic/{topic.replace('/', '.')}", "hello", **context)
    client.leave()


_batches = count(1)


def by_http(broker: BrokerProcess, topic: str, context: dict[str, str]) -> None:
    part = stage(broker, "writer", arrow([(topic, None, {"user": list(context.items())}, b"hello")]))
    publish(broker, "writer", next(_batches), part)


WAYS = [by_mqtt, by_amqp, by_amqp1, by_stomp, by_http]


def spans(collector: SpanCollector, trace: int) -> tuple[Told, dict[str, Told]]:
    return until(lambda: collector.of(trace), what=f"the spans of {trace:032x}")


@pytest.mark.parametrize("way", WAYS, ids=lambda way: str(way.__name__))
def test_a_record_has_a_span_and_each_of_its_consumers(house: BrokerProcess, collector: SpanCollector, way: object
                                                       ) -> None:
    topic = f"kept/{next(_traces):x}"
    with paho(house.port, "mqtt-reader") as reader:
        reader.subscribe(topic, 1)
        pika = Pika(house.port)
        queue = pika.bound("amq.topic", topic.replace("/", "."))
        trace, context = a_trace()
        way(house, topic, context)  # type: ignore[operator]
        (got,) = reader.wait(1)
        assert dict(got.properties.UserProperty)["traceparent"] == context["traceparent"], "it goes on unchanged"
        until(lambda: pika.get(queue, auto_ack=True))
        top, below = spans(collector, trace)
        pika.close()
    assert (top.name, top.parent, top.kind, top.state) == (f"receive {topic}", f"{SPAN:016x}", "server", STATE)
    assert {name: top.about[name] for name in top.about if name.startswith("messaging.") and "client" not in name} == {
        "messaging.system": "headway", "messaging.destination.name": topic, "messaging.operation.name": "receive",
        "messaging.operation.type": "receive", "messaging.message.body.size": 5,
    }  # fmt: skip
    assert top.about["headway.consumers.owed"] == top.about["headway.consumers.got"] == 2
    assert (top.resource["service.name"], top.about["headway.state"]) == ("orders", "complete")
    assert set(below) == {"mqtt-reader", queue}
    for span in below.values():
        assert (span.name, span.kind, span.outcome, span.failed) == (f"deliver {topic}", "producer", "delivered", False)
        assert span.about["messaging.operation.type"] == "send"
        assert top.began_ns == span.began_ns <= span.ended_ns <= top.ended_ns
        assert span.about["headway.age_s"] == pytest.approx((span.ended_ns - span.began_ns) / 1e9, abs=1e-4)
    path, headers = collector.requests[-1]
    assert (path, headers["authorization"]) == ("/v1/traces", "Bearer secret")


def test_what_is_not_sampled_has_none(house: BrokerProcess, collector: SpanCollector) -> None:
    with paho(house.port, "reader") as reader:
        reader.subscribe("plain", 1)
        unsampled, context = a_trace(sampled=False)
        by_mqtt(house, "plain", context)
        by_mqtt(house, "plain", {})
        sampled, context = a_trace()
        by_mqtt(house, "plain", context)
        reader.wait(3)
    spans(collector, sampled)
    assert collector.of(unsampled) is None


def test_a_queue_of_the_default_exchange_is_named_by_its_name(house: BrokerProcess, collector: SpanCollector) -> None:
    client = Pika(house.port)
    client.out.queue_declare("jobs")
    trace, context = a_trace()
    client.out.basic_publish("", "jobs", b"x", amqp_properties(headers=context))
    until(lambda: client.get("jobs", auto_ack=True))
    top, below = spans(collector, trace)
    client.close()
    assert top.about["messaging.destination.name"] == "jobs"
    assert (below["jobs"].outcome, below["jobs"].about["headway.queue"]) == ("delivered", "jobs")


POLICY = """
[listeners.mqtt]
url = "mqtt://127.0.0.1:0"
[traces]
endpoint = "{url}"
[[policy]]
name = "nobody lags"
topics = ["t"]
[[policy.rule]]
when = {{ lag_records = "> 5" }}
then = {{ action = "discard", which = "oldest", keep_records = 0 }}
"""


def test_who_does_not_get_it_says_which_policy_did_it(start: BrokerFactory, collector: SpanCollector) -> None:
    broker = start(POLICY.format(url=collector.url))
    trace, context = a_trace()
    with paho(broker.port, "quick") as quick, Raw(broker.port, "stuck", receive_max=1) as stuck:
        quick.subscribe("t", 0)
        stuck.subscribed(TopicRequest("t", 1))
        for number in range(10):
            by_mqtt(broker, "t", context if number == 1 else {})
        top, below = spans(collector, trace)
    lost = below["stuck"]
    assert (below["quick"].outcome, lost.outcome, lost.failed) == ("delivered", "discarded", True)
    assert lost.about["headway.policy"] == "nobody lags"
    assert (lost.about["headway.rule"], lost.about["headway.reason"]) == (1, "discarded")
    assert top.about["headway.consumers.discarded"] == 1
    verdict = lost.events["headway.verdict"]
    assert verdict["headway.policy"] == "nobody lags"
    assert "stuck" in verdict["headway.text"]
    assert verdict["headway.verdict"] in [one["number"] for one in broker.verdicts("stuck")]


def figures(broker: BrokerProcess) -> dict[str, float]:
    text = broker.call("/metrics")[1].decode()
    found = re.findall(r"^headway_(traces_\w+)(?:\{why=\"(\w+)\"\})? (\S+)$", text, re.MULTILINE)
    return {name.removesuffix("_total") + (f"_{why}" if why else ""): float(value) for name, why, value in found}


AWAY = """
[listeners.mqtt]
url = "mqtt://127.0.0.1:0"
[traces]
endpoint = "{url}"
timeout = "200ms"
waiting_max = 5
"""


def test_a_collector_that_is_away_costs_traces_and_nothing_else(start: BrokerFactory) -> None:
    with span_collector() as gone:
        pass
    broker = start(AWAY.format(url=gone.url))
    trace, context = a_trace()
    with paho(broker.port, "reader") as reader:
        reader.subscribe("t", 1)
        by_mqtt(broker, "t", context)
        reader.wait(1)
        until(lambda: figures(broker)["traces_dropped_not_taken"] == 1)
        assert figures(broker)["traces_failing"] == 1
        assert f"traces: 1 could not be sent to {gone.url}/v1/traces: Connection refused\n" in broker.log.read_text()
        for word in ("Transient error", "Failed to export"):
            assert word not in broker.log.read_text(), "the library's own lines would be one for each try"
        with span_collector(gone.port) as back:
            trace, context = a_trace()
            by_mqtt(broker, "t", context)
            spans(back, trace)
            until(lambda: not figures(broker)["traces_failing"])
        reader.wait(2)
    assert f"traces: {gone.url}/v1/traces takes them again" in broker.log.read_text()


def test_a_collector_that_refuses_them_is_told_with_its_answer(start: BrokerFactory) -> None:
    with span_collector() as strict:
        strict.status = 401
        broker = start(AWAY.format(url=strict.url))
        by_mqtt(broker, "t", a_trace()[1])
        until(lambda: f"could not be sent to {strict.url}/v1/traces: HTTP 401 Unauthorized\n" in broker.log.read_text())
        assert len(strict.requests) == 1, "it is not asked again"


def test_a_slow_collector_holds_nobody_up_and_what_waits_is_limited(start: BrokerFactory) -> None:
    with span_collector() as slow:
        slow.held.clear()
        broker = start(AWAY.format(url=slow.url).replace("200ms", "60s"))
        with paho(broker.port, "reader") as reader:
            reader.subscribe("t", 1)
            by_mqtt(broker, "t", a_trace()[1])
            until(lambda: slow.requests)
            for _ in range(8):
                by_mqtt(broker, "t", a_trace()[1])
            assert len(reader.wait(9)) == 9
            until(lambda: figures(broker)["traces_dropped_queue_full"] == 3)
            assert figures(broker)["traces_waiting"] == 5
            slow.held.set()
            until(lambda: figures(broker)["traces_exported_spans"] == 2 * 6)
            assert figures(broker)["traces_followed"] == 9


def test_a_stop_sends_what_waits_and_ends_what_is_open(start: BrokerFactory) -> None:
    with span_collector() as collector:
        broker = start(AWAY.format(url=collector.url).replace("200ms", "60s"))
        trace, context = a_trace()
        with paho(broker.port, "away", connect=properties("CONNECT", SessionExpiryInterval=600)) as away:
            away.subscribe("t", 1)
        by_mqtt(broker, "t", context)
        broker.signal(signal.SIGTERM)
        top, below = spans(collector, trace)
        until(lambda: not broker.alive)
    assert top.about["headway.state"] == "broker_stops"
    assert below["away"].outcome == "waiting"


def test_a_stop_does_not_wait_for_a_collector_that_hangs(start: BrokerFactory) -> None:
    with span_collector() as collector:
        collector.held.clear()
        broker = start(AWAY.format(url=collector.url).replace("200ms", "60s"))
        by_mqtt(broker, "t", a_trace()[1])
        until(lambda: collector.requests)
        broker.signal(signal.SIGTERM)
        until(lambda: not broker.alive)
        assert "traces: 1 could not be sent" in broker.log.read_text()


def test_a_broker_without_traces_has_no_figures_of_them(broker: BrokerProcess) -> None:
    assert figures(broker) == {}
