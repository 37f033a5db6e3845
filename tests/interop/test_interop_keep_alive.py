"""``keep_alive_max`` of a listener, with clients that others wrote: each protocol has its own way to agree on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import stomp
from pika.exceptions import AMQPError
from proton.utils import BlockingConnection
from tests.interop.amqp_pika import Pika
from tests.interop.conftest import BrokerFactory
from tests.interop.jms_client import Jms, JmsError, needs_jms
from tests.interop.openwire_fixtures import url_of
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.stomps import Client, Heard
from tests.interop.waiting import PATIENCE_S

SCHEMES = ("mqtt", "amqp", "stomp", "openwire")
CONFIG = "".join(
    f'[listeners.{scheme}]\nurl = "{scheme}://127.0.0.1:0"\nkeep_alive_max = "20s"\n' for scheme in SCHEMES
)


@pytest.fixture(scope="module")
def broker(start: BrokerFactory) -> Iterator[BrokerProcess]:
    process = start(CONFIG)
    yield process
    process.stop()


def test_mqtt_5_is_told_a_shorter_time(broker: BrokerProcess, name: str) -> None:
    with Raw(broker.ports["mqtt"] or 0, name, keep_alive_s=600) as client:
        assert client.connack.fields.server_keep_alive == 20


@pytest.mark.parametrize(("asked", "agreed"), [(None, 20), (5, 5)])
def test_pika_takes_what_is_offered(broker: BrokerProcess, asked: int | None, agreed: int) -> None:
    client = Pika(broker.ports["amqp"] or 0, heartbeat=asked)
    assert client.connection._impl.params.heartbeat == agreed
    client.close()


@pytest.mark.parametrize("asked", [0, 60])
def test_pika_is_told_that_it_sends_too_seldom(broker: BrokerProcess, asked: int) -> None:
    with pytest.raises(AMQPError) as refused:
        Pika(broker.ports["amqp"] or 0, heartbeat=asked)
    assert "keep_alive_max of this listener" in repr(refused.value)
    assert "530" in repr(refused.value)


def test_proton_is_told_the_idle_time_out(broker: BrokerProcess) -> None:
    client = BlockingConnection(f"amqp://127.0.0.1:{broker.ports['amqp']}", timeout=PATIENCE_S)
    assert client.conn.transport.remote_idle_timeout == 20.0
    client.close()


def test_stomp_py_agrees_or_is_told(broker: BrokerProcess) -> None:
    client = Client(broker.ports["stomp"] or 0, heartbeats=(5000, 5000))
    assert client.conn.is_connected()
    client.leave()
    mute, heard = stomp.Connection12([("127.0.0.1", broker.ports["stomp"])]), Heard()
    mute.set_listener("heard", heard)
    with pytest.raises(stomp.exception.ConnectFailedException):
        mute.connect(wait=True)
    [(_, text)] = heard.errors
    assert "the client sends no heartbeats; keep_alive_max of this listener" in text


@needs_jms
def test_a_client_of_jms_agrees_or_is_told(broker: BrokerProcess, jms: Jms) -> None:
    jms.do("close", jms.connect(url_of(broker, "?wireFormat.maxInactivityDuration=60000")))
    with pytest.raises(JmsError, match="keep_alive_max of this listener"):
        jms.connect(url_of(broker, "?wireFormat.maxInactivityDuration=0"))
