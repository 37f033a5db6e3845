"""A mosquitto that is bridged to the broker, with its defaults: in both directions, while either side restarts."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from getpass import getuser
from pathlib import Path

import pytest
from bench.peers.peer import free_ports
from tests.interop.conftest import BrokerFactory
from tests.interop.pahos import Paho, paho, properties
from tests.interop.process import BrokerProcess
from tests.interop.waiting import until

MOSQUITTO = shutil.which("mosquitto", path="/usr/bin:/usr/sbin:/usr/local/sbin")
pytestmark = pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed")

HEADWAY = """
[listeners.mqtt]
url = "mqtt://127.0.0.1:{port}"
[journal]
path = "{folder}/journal"
"""
BRIDGE = """
user {user}
listener {own} 127.0.0.1
allow_anonymous true
persistence true
persistence_location {folder}/
connection hw
address 127.0.0.1:{port}
topic # both 2
restart_timeout 1
{more}
"""


class Mosquitto:
    def __init__(self, folder: Path, port: int, more: str = "") -> None:
        self.port, self._config, self._log = free_ports(1)[0], folder / "mosquitto.conf", folder / "log"
        self._config.write_text(BRIDGE.format(user=getuser(), own=self.port, folder=folder, port=port,
                                               more=more))  # fmt: skip
        self.start()

    def start(self) -> None:
        assert MOSQUITTO is not None
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([MOSQUITTO, "-v", "-c", str(self._config)], stdout=log, stderr=log)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()

    @property
    def refused(self) -> bool:
        return "Connection Refused" in self._log.read_text()


class Sides:
    """Both brokers, each with a client that keeps its session, comes back by itself, and gets everything."""

    def __init__(self, start: BrokerFactory, folder: Path, port: int, more: str = "") -> None:
        self._start, self._config = start, HEADWAY.format(folder=folder, port=port)
        self.headway: BrokerProcess = start(self._config)
        self.mosquitto = Mosquitto(folder, port, more)
        self.ports = {"headway": port, "mosquitto": self.mosquitto.port}
        until(lambda: self.headway.consumer(self._bridge(), "#"), what="the bridge is up")
        self._open = ExitStack()
        expiry = properties("CONNECT", SessionExpiryInterval=3600)
        self.watchers: dict[str, Paho] = {}
        for side, number in self.ports.items():
            watcher = self._open.enter_context(paho(number, f"watcher-{side}", clean=False, connect=expiry))
            watcher.subscribe("#", 2)
            self.watchers[side] = watcher
        self.sent: list[str] = []

    def _bridge(self) -> str:
        rows = self.headway.get("/v1/consumers")["consumers"]
        return next((row["client"] for row in rows if row["client"].endswith(".hw")), "")

    def publish(self, side: str, topic: str, payload: str, qos: int = 2, *, retain: bool = False) -> None:
        with paho(self.ports[side], f"publisher-{side}") as client:
            client.publish(topic, payload, qos, retain=retain)
        self.sent.append(payload)

    def got(self, side: str) -> Counter[str]:
        return Counter(message.payload.decode() for message in self.watchers[side].messages)

    def lacks(self, side: str) -> set[str]:
        return set(self.sent) - set(self.got(side))

    def check(self) -> None:
        """Each side has everything once, whichever side it came from."""
        for side in self.ports:
            until(lambda side=side: not self.lacks(side), what=lambda side=side: f"{side} lacks {self.lacks(side)}")
        for side in self.ports:  # what went round would have been on its way before these
            self.publish(side, f"end/{len(self.sent)}", f"end {len(self.sent)} at {side}")
        for side in self.ports:
            until(lambda side=side: not self.lacks(side))
            assert self.got(side) == Counter(self.sent)

    def start_headway(self) -> None:
        self.headway = self._start(self._config)

    def close(self) -> None:
        self._open.close()
        self.mosquitto.stop()
        self.headway.stop()


@pytest.fixture
def sides(start: BrokerFactory, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Sides]:
    both = Sides(start, tmp_path, free_ports(1)[0], getattr(request, "param", ""))
    yield both
    both.close()


def test_bridge_carries_everything_once_both_ways_through_restarts_of_either_side(sides: Sides) -> None:
    for qos in (0, 1, 2):
        for side in sides.ports:
            sides.publish(side, f"a/{qos}", f"{side} at QoS {qos}", qos)
    sides.check()
    sides.headway.stop()
    for number in range(5):
        sides.publish("mosquitto", "away", f"without Headway {number}")
    sides.start_headway()
    sides.check()
    sides.mosquitto.stop()
    for number in range(5):
        sides.publish("headway", "away", f"without mosquitto {number}")
    sides.mosquitto.start()
    sides.check()
    assert not sides.mosquitto.refused


@pytest.mark.parametrize(
    "sides", ["", "bridge_protocol_version mqttv50"], indirect=True, ids=["its default", "MQTT 5"]
)
def test_bridged_broker_retains_what_the_other_one_retains(sides: Sides) -> None:
    for side in sides.ports:
        sides.publish(side, f"kept/by/{side}", f"kept by {side}", 1, retain=True)
    sides.check()
    for port in sides.ports.values():
        with paho(port, "late") as late:
            late.subscribe("kept/#", 1)
            found = {(message.payload.decode(), message.retain) for message in late.wait(2)}
            assert found == {("kept by headway", True), ("kept by mosquitto", True)}
