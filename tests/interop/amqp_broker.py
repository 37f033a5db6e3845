"""The broker that the AMQP tests speak to: Headway; or, with HEADWAY_TEST_AMQP_URL, one that others started, by which
the tests themselves are tested. HEADWAY_TEST_MQTT_URL: where that one speaks MQTT 3.1.1."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from tests.interop.process import BrokerProcess
from tests.passwords import cheap_hash

LISTENER = '[listeners.amqp]\nurl = "amqp://127.0.0.1:0"\n'


class AmqpBroker(NamedTuple):
    """``closed_port``: only guest may come in there, with the password guest. ``process``: None for another broker."""

    port: int
    closed_port: int
    mqtt_port: int | None
    process: BrokerProcess | None

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"


def start_broker(folder: Path) -> AmqpBroker:
    """It has an MQTT listener, too."""
    url = os.environ.get("HEADWAY_TEST_AMQP_URL")
    if url:
        port = urlsplit(url).port or 5672
        return AmqpBroker(port, port, urlsplit(os.environ.get("HEADWAY_TEST_MQTT_URL", "")).port, None)
    process = BrokerProcess(folder, _config())
    process.login = "guest:guest"
    ports = process.ports
    return AmqpBroker(ports["amqp"] or 0, ports["closed"] or 0, ports["mqtt"], process)


def _config() -> str:
    return f"""
{LISTENER}
allow_anonymous = true
[listeners.closed]
url = "amqp://127.0.0.1:0"
allow_anonymous = false
[listeners.mqtt]
url = "mqtt://127.0.0.1:0"
allow_anonymous = true
[auth.users]
guest = "{cheap_hash("guest")}"
"""
