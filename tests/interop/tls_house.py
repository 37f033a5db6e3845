"""A broker with TLS on every listener."""

from __future__ import annotations

import json
import ssl
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

from tests.certificates import trusting
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.waiting import PATIENCE_S, until

MINIMAL = """
[server.tls]
certificate = "{folder}/server.pem"
key = "{folder}/server-key.pem"
[listeners.mqtt]
url = "mqtts://127.0.0.1:0"
[listeners.mqtt.tls]
certificate = "{folder}/server.pem"
key = "{folder}/server-key.pem"
"""
"""The admin API and MQTT with one certificate."""
CONFIG = MINIMAL + """[[listeners.mqtt.tls.also]]
certificate = "{folder}/other.pem"
key = "{folder}/other-key.pem"
[listeners.amqp]
url = "amqps://127.0.0.1:0"
[listeners.amqp.tls]
certificate = "{folder}/rsa.pem"
key = "{folder}/rsa-key.pem"
[listeners.known]
url = "mqtts://127.0.0.1:0"
[listeners.known.tls]
certificate = "{folder}/server.pem"
key = "{folder}/server-key.pem"
ca = "{folder}/ca.pem"
verify = "required"
[listeners.known-amqp]
url = "amqps://127.0.0.1:0"
[listeners.known-amqp.tls]
certificate = "{folder}/server.pem"
key = "{folder}/server-key.pem"
ca = "{folder}/ca.pem"
verify = "required"
[listeners.few]
url = "mqtts://127.0.0.1:0"
handshakes_max = 50
[listeners.few.tls]
certificate = "{folder}/server.pem"
key = "{folder}/server-key.pem"
[listeners.expired]
url = "mqtts://127.0.0.1:0"
[listeners.expired.tls]
certificate = "{folder}/late.pem"
key = "{folder}/late-key.pem"
[listeners.plain]
url = "mqtt://127.0.0.1:0"
[listeners.plain-web]
url = "ws://127.0.0.1:0"
[listeners.plain-amqp]
url = "amqp://127.0.0.1:0"
"""


class House(NamedTuple):
    broker: BrokerProcess
    folder: Path
    ca: Path

    def port(self, listener: str = "mqtt") -> int:
        found = self.broker.ports[listener]
        assert found is not None
        return found

    def context(self, user: str | None = None) -> ssl.SSLContext:
        pair = (self.folder / f"{user}.pem", self.folder / f"{user}-key.pem") if user else None
        return trusting(self.ca, pair)

    def raw(self, name: str = "", listener: str = "mqtt", user: str | None = None, **more: Any) -> Raw:
        return Raw(self.port(listener), name, tls=self.context(user), **more)

    def says(self, words: str) -> str:
        """Waits for a line of the log."""
        def line() -> str:
            return next((one for one in self.broker.log.read_text().splitlines() if words in one), "")

        return until(line, what=f"the log says {words!r}")


def ask(house: House, path: str, user: str | None = None) -> Any:
    url = house.broker.admin.replace("127.0.0.1", "localhost") + path
    with urllib.request.urlopen(url, timeout=PATIENCE_S, context=house.context(user)) as answer:
        return json.load(answer)
