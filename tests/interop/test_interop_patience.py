"""Patience over MQTT: a subscriber asks for it, is told what it got, and is not slow while it holds a record."""

from __future__ import annotations

from typing import Any

import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.pahos import paho, properties
from tests.interop.process import BrokerProcess
from tests.interop.waiting import until

CONFIG = """
[[policy]]
name = "credit"
patience_max = "20s"

[[policy.rule]]
when = { credit_exhausted_time = "500ms" }
then = "disconnect"
"""


@pytest.fixture(scope="module")
def governed(start: BrokerFactory) -> BrokerProcess:
    return start(CONFIG)


@pytest.mark.parametrize(("asked", "granted"), [("10s", "10 s"), ("1h", "20 s"), ("", "")])
def test_who_asked_holds_a_full_window(governed: BrokerProcess, name: str, asked: str, granted: str) -> None:
    topic, suback = f"jobs/{name}", []
    with paho(governed.port, name, connect=properties("CONNECT", ReceiveMaximum=1)) as worker:
        worker.client.manual_ack_set(True)
        worker.client.on_subscribe = lambda *about: suback.append(about[-1])
        more: dict[str, Any] = {"UserProperty": [("patience", asked)]} if asked else {}
        worker.client.subscribe(topic, 1, properties=properties("SUBSCRIBE", **more))
        (told,) = until(lambda: suback)
        assert getattr(told, "UserProperty", []) == ([("patience", granted)] if asked else [])
        with paho(governed.port, f"{name}-publisher") as publisher:
            for number in range(3):
                publisher.publish(topic, str(number), 1)
        (job,) = worker.wait(1)
        if not asked:
            assert until(lambda: governed.verdicts(name))[0]["reason"] == "credit_exhausted"
            return
        held = until(lambda: (one := governed.consumer(name))["ack_age_ms"] > 1500 and one)
        assert (held["slow"], held["lag_records"]) == (False, 2)
        worker.client.ack(job.mid, job.qos)
        assert [message.payload for message in worker.wait(2)] == [b"0", b"1"]
        assert governed.verdicts(name) == []


def test_a_misspelt_time_is_refused(governed: BrokerProcess, name: str) -> None:
    with paho(governed.port, name) as worker:
        said = properties("SUBSCRIBE", UserProperty=[("patience", "20")])
        assert [code.value for code in worker.subscribe("t", 1, properties=said)] == [0x83]
