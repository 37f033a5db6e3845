"""paho-mqtt as most people use it, with what arrived kept in the order it came."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from tests.interop.waiting import PATIENCE_S, until

VERSIONS = {4: MQTTProtocolVersion.MQTTv311, 5: MQTTProtocolVersion.MQTTv5}


def properties(packet: str, **values: Any) -> Properties:
    """``properties("PUBLISH", MessageExpiryInterval=5)``"""
    made = Properties(getattr(PacketTypes, packet))
    for key, value in values.items():
        setattr(made, key, value)
    return made


class Paho:
    """A connected client; its network runs in a thread of paho's own."""

    def __init__(
        self,
        port: int,
        client_id: str,
        version: int = 5,
        *,
        clean: bool = True,
        will: dict[str, Any] | None = None,
        user: tuple[str, str] | None = None,
        connect: Properties | None = None,
        keep_alive_s: int = 60,
        host: str = "127.0.0.1",
    ) -> None:
        options: dict[str, Any] = {} if version == 5 else {"clean_session": clean}
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id, protocol=VERSIONS[version], **options)
        self.messages: list[mqtt.MQTTMessage] = []
        self.connack: Any = None
        self.connect_flags: Any = None
        self.connect_properties: Any = None
        self.granted: dict[int, list[Any]] = {}
        self.ended: list[Any] = []
        self.client.on_message = lambda _client, _data, message: self.messages.append(message)
        self.client.on_connect = self._connected
        self.client.on_subscribe = lambda _c, _d, number, codes, _p: self.granted.__setitem__(number, codes)
        self.client.on_disconnect = lambda _c, _d, _flags, code, _p: self.ended.append(code)
        if will is not None:
            self.client.will_set(**will)
        if user is not None:
            self.client.username_pw_set(*user)
        more: dict[str, Any] = {"clean_start": clean, "properties": connect} if version == 5 else {}
        self.client.connect(host, port, keep_alive_s, **more)
        self.client.loop_start()
        until(lambda: self.connack is not None, what=f"CONNACK for {client_id}")

    def _connected(self, _client: Any, _data: Any, flags: Any, code: Any, properties: Any) -> None:
        self.connect_flags, self.connect_properties, self.connack = flags, properties, code

    def subscribe(self, *args: Any, **more: Any) -> list[Any]:
        """The codes granted."""
        number = self.client.subscribe(*args, **more)[1]
        assert number is not None
        return until(lambda: self.granted.pop(number, None), what="SUBACK") or []

    def publish(self, topic: str, payload: bytes | str | None = None, qos: int = 0, **more: Any) -> None:
        """Publish and, above QoS 0, see the handshake to its end."""
        self.client.publish(topic, payload, qos, **more).wait_for_publish(PATIENCE_S)

    def wait(self, count: int, seconds: float = PATIENCE_S) -> list[mqtt.MQTTMessage]:
        until(lambda: len(self.messages) >= count, seconds, f"{count} messages")
        return self.messages[:]

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@contextmanager
def paho(*args: Any, **more: Any) -> Iterator[Paho]:
    client = Paho(*args, **more)
    try:
        yield client
    finally:
        client.close()
