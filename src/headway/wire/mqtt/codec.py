"""The codec of MQTT for code that knows no protocol."""

from __future__ import annotations

from headway.wire.codec import Codec
from headway.wire.common import begins
from headway.wire.mqtt.dialect import MqttDialect
from headway.wire.mqtt.replies import Replies

CONNECT = b"\x10"

CODEC = Codec(
    port=1883, tls_port=8883, packet_bytes_max=1_000_000, in_flight_max=1024, opens=lambda data: begins(data, CONNECT),
    dialects=(MqttDialect,), subprotocols=("mqtt", "mqttv3.1"), filler=Replies(0).pingresp(),
)  # fmt: skip
