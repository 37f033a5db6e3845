"""Actors: the processes of the demo that speak MQTT. This is what they share.

An actor is started with its part as JSON, gets its orders (``go``, ``stop``) on standard input and reports on standard
output, one JSON object a line. When its input closes, because the demo ended or was killed, it stops: nothing is left
running. Only the demo itself minds Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from demo.cast import Role
from demo.reports import ActorReport

REPORT_EVERY_S = 0.5
CONNECT_TIMEOUT_S = 10.0
NICE = 10
"""Clients are elsewhere as a rule; here they leave the broker the core that it would have for itself."""
KEEP_ALIVE_S = 3600
"""Longer than the demo: who stops reading is to be found out by the broker's policies, not by keep-alive."""


class Orders:
    """Commands of the demo, read from standard input by a thread of its own."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.stop = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            if line.strip() == "go":
                self.go.set()
            elif line.strip() == "stop":
                break
        self.stop.set()
        self.go.set()


def say(report: ActorReport) -> None:
    """One line to the demo. Where nobody listens any more, the process ends."""
    try:
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        sys.exit(1)


def make_client(part: Role, *, receive_maximum: int | None = None, manual_ack: bool = False) -> mqtt.Client:
    """A paho client for MQTT 5 under the part's name, without a thread: the actor itself says when it reads."""
    client = mqtt.Client(
        CallbackAPIVersion.VERSION2, client_id=part.name, protocol=mqtt.MQTTv5, manual_ack=manual_ack
    )
    client.user_data_set(receive_maximum)
    return client


def connect(client: mqtt.Client, part: Role) -> None:
    """Ask for a connection; the answer comes to ``on_connect``."""
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    receive_maximum = client.user_data_get()
    if receive_maximum is not None:
        properties.ReceiveMaximum = receive_maximum
    client.connect(part.host, part.port, KEEP_ALIVE_S, clean_start=True, properties=properties)


def subscribe(client: mqtt.Client, part: Role) -> None:
    properties = Properties(PacketTypes.SUBSCRIBE)  # type: ignore[no-untyped-call]
    if part.policy:
        properties.UserProperty = ("policy", part.policy)
    client.subscribe(part.filter, options=SubscribeOptions(qos=part.qos), properties=properties)


def loop_until(client: mqtt.Client, ready: Callable[[], bool], timeout_s: float = CONNECT_TIMEOUT_S) -> bool:
    """Read and write until ``ready``; False when that did not come in time or the connection ended."""
    end = time.monotonic() + timeout_s
    while not ready():
        if client.loop(0.05) != mqtt.MQTT_ERR_SUCCESS or time.monotonic() > end:
            return ready()
    return True


def words(code: ReasonCode, properties: Properties | None) -> str:
    """A reason code and its reason string as one line."""
    text = getattr(properties, "ReasonString", "") if properties is not None else ""
    return f"0x{code.value:02X} {code}{': ' + text if text else ''}"


def main(play: Callable[[Role, Orders], Any]) -> None:
    """Play the part given on the command line. Ctrl-C in the terminal reaches all; only the demo answers it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICE)
    part = msgspec.json.decode(sys.argv[1], type=Role)
    play(part, Orders())
