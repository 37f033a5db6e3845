"""Slow consumers of JMS: asked to close or cut, with the reason, while the others go on; and clients that come back."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.jms_client import CLIENT, NON_PERSISTENT, PERSISTENT, TRANSACTED, Jms, JmsError, needs_jms
from tests.interop.openwire_fixtures import LISTENERS, fresh, url_of
from tests.interop.process import BrokerProcess
from tests.interop.waiting import until

pytestmark = needs_jms
RULE = 'when = { credit_exhausted_time = "300ms" }\nthen = '
CONFIG = (
    LISTENERS
    + '[[policy]]\nname = "ask"\ntopics = ["ask/#", "$queue/ask/+"]\n[[policy.rule]]\n' + RULE + '"close_consumer"\n'
    + '[[policy]]\nname = "cut"\ntopics = ["cut/#", "$queue/cut/+"]\n[[policy.rule]]\n' + RULE + '"disconnect"\n'
)  # fmt: skip


@pytest.fixture(scope="module")
def governed(start: BrokerFactory) -> Iterator[BrokerProcess]:
    broker = start(CONFIG)
    yield broker
    broker.stop()


@pytest.mark.parametrize("there", ["topic://ask.prices", "queue://ask/orders"])
def test_a_slow_consumer_is_asked_to_close_and_told_why(jms: Jms, governed: BrokerProcess, there: str) -> None:
    slow, other = jms.connect(url_of(governed)), jms.connect(url_of(governed))
    session, sending = jms.session(slow, CLIENT), jms.session(other)
    watcher = jms.consumer(sending, "topic://ActiveMQ.Advisory.SlowConsumer.>")
    consumer = jms.consumer(session, f"{there}?consumer.prefetchSize=5")
    fast = jms.consumer(sending, "topic://ask.prices")
    jms.do("flood", jms.producer(sending), sending, f"{there},topic://ask.prices", NON_PERSISTENT, 50, None)
    until(lambda: any("acknowledge" in fault or "credit" in fault for fault in jms.faults(slow)) or None)
    until(lambda: _is_closed(jms, consumer))
    assert len(jms.drain(fast, 50)) == 50
    advisory = jms.got(watcher)
    assert advisory.destination.startswith("topic://ActiveMQ.Advisory.SlowConsumer")
    assert json.loads(advisory.body or "")["text"]
    assert jms.consumer(session, fresh())  # the connection goes on
    jms.do("close", slow)
    jms.do("close", other)


def _is_closed(jms: Jms, consumer: str) -> bool:
    try:
        jms.receive(consumer, 100)
    except JmsError as error:
        return "closed" in error.text
    return False


@pytest.mark.parametrize("there", ["queue://ask/work", "queue://cut/work", "topic://ask.work", "topic://cut.work"])
def test_a_commit_of_a_consumer_that_was_closed_fails(jms: Jms, governed: BrokerProcess, there: str) -> None:
    """Also of one of topics, whose records are nobody else's."""
    slow, other = jms.connect(url_of(governed)), jms.connect(url_of(governed))
    session, sending, out = jms.session(slow, TRANSACTED), jms.session(other), fresh()
    consumer = jms.consumer(session, f"{there}?consumer.prefetchSize=5")
    jms.consumer(jms.session(slow), fresh())  # so that the connection is not cut
    jms.do("flood", jms.producer(sending), sending, there, NON_PERSISTENT, 20, None)
    taken = jms.got(consumer).body
    until(lambda: jms.faults(slow), what="it is asked to close")
    jms.send(jms.producer(session), session, "sent", out)
    with pytest.raises(JmsError, match="rolled back"):
        jms.do("commit", session)
    if there.startswith("queue"):
        assert jms.got(jms.consumer(sending, there)).body == taken
    assert jms.receive(jms.consumer(sending, out), 200) is None
    jms.do("close", slow)
    jms.do("close", other)


def test_a_consumer_that_is_cut_learns_why(jms: Jms, governed: BrokerProcess) -> None:
    slow, other = jms.connect(url_of(governed)), jms.connect(url_of(governed))
    session, sending = jms.session(slow, CLIENT), jms.session(other)
    jms.consumer(session, "topic://cut.prices?consumer.prefetchSize=5")
    jms.do("flood", jms.producer(sending), sending, "topic://cut.prices", NON_PERSISTENT, 50, None)
    until(lambda: len(jms.faults(slow)) >= 2 or None)
    assert "cut" in str(jms.faults(slow))
    jms.do("close", other)


def test_a_client_of_the_failover_transport_survives_kills_of_the_broker(
    jms: Jms, start: BrokerFactory, tmp_path: Path
) -> None:
    journal = f'[journal]\npath = "{tmp_path}"\n'
    broker = start(LISTENERS + journal)
    port = broker.ports["openwire"]
    config = LISTENERS.replace("openwire://127.0.0.1:0", f"openwire://127.0.0.1:{port}") + journal
    connection = jms.connect(f"failover:(tcp://127.0.0.1:{port})?initialReconnectDelay=20&useExponentialBackOff=false")
    session = jms.session(connection)
    there, producer = fresh(), jms.producer(session)
    consumer = jms.consumer(session, there)
    for number in range(3):
        for part in range(5):
            jms.send(producer, session, f"{number}.{part}", there, mode=PERSISTENT)
        assert jms.got(consumer).body == f"{number}.0"
        broker.signal(signal.SIGKILL)
        broker.wait()
        broker = start(config)
        got = {f"{number}.0"}
        while len(got) < 5:
            body = jms.got(consumer).body
            assert body is not None
            assert body.startswith(f"{number}."), "what was acknowledged does not come again"
            got.add(body)
    broker.stop()
