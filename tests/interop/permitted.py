"""A broker with permissions, as its operator would write them, and clients of its users."""

from __future__ import annotations

import json
import signal
from typing import Any

import pika
from tests.interop.amqp_pika import Pika
from tests.interop.pahos import Paho
from tests.interop.process import BrokerProcess
from tests.interop.waiting import until
from tests.passwords import cheap_hash

SECRET = "secret"
USERS = ("alice", "bob", "carol", "root")
_HASHES = "[auth.users]\n" + "".join(f'{name} = "{cheap_hash(SECRET)}"\n' for name in USERS)
_LISTENERS = """
[listeners.mqtt]
url = "mqtt://127.0.0.1:0"
[listeners.amqp]
url = "amqp://127.0.0.1:0"
"""
ROOT = """
[[permission]]
user = "root"
publish = ["#", "$queue/#", "$exchange/#"]
subscribe = ["#", "$SYS/#", "$queue/#", "$exchange/#"]
declare = ["$queue/#", "$exchange/#", "$cursor/#", "$writer/#"]
admin = ["change"]
"""
"""One who may do everything."""


def permission(user: str = "", **lists: list[str]) -> str:
    """A table of the config; ``connect``, ``publish``, ``subscribe``, ``declare``, ``admin``."""
    whom = [f'user = "{user}"'] if user else []
    given = [f"{key} = {json.dumps(value)}" for key, value in lists.items()]
    return "\n".join(["[[permission]]", *whom, *given]) + "\n"


def config(*permissions: str, more: str = "") -> str:
    return _LISTENERS + _HASHES + more + ROOT + "".join(permissions)


def reload(broker: BrokerProcess, text: str) -> None:
    """Put another config in force, and see that it is."""
    before = broker.log.read_text().count("reload: ")
    broker.write(text)
    broker.signal(signal.SIGHUP)
    until(lambda: broker.log.read_text().count("reload: ") > before, what="the reload")
    assert "nothing was changed" not in broker.log.read_text().splitlines()[-1]


def paho(broker: BrokerProcess, user: str, client: str = "", version: int = 5, **more: Any) -> Paho:
    return Paho(broker.ports["mqtt"], client or user, version, user=(user, SECRET), **more)


def rabbit(broker: BrokerProcess, user: str, **more: Any) -> Pika:
    return Pika(broker.ports["amqp"], credentials=pika.PlainCredentials(user, SECRET), **more)


def why(broker: BrokerProcess, client: str) -> list[str]:
    """The words of what was denied to a client, the newest first."""
    broker.login = f"root:{SECRET}"
    return [one["text"] for one in broker.get(f"/v1/why/{client}")["denied"]]


def denied(broker: BrokerProcess, operation: str) -> float:
    """How much the metrics count."""
    broker.login = f"root:{SECRET}"
    _, page = broker.call("/metrics")
    found = [line for line in page.decode().splitlines() if f'denied_total{{operation="{operation}"}}' in line]
    return float(found[0].split()[-1])
