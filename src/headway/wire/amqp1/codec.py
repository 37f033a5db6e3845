"""The codec of AMQP 1.0 for code that knows no protocol. It is spoken at the listeners of older AMQP, too: the protocol
header tells them apart."""

from __future__ import annotations

from headway.wire.amqp1.replies import EMPTY, HEADERS
from headway.wire.codec import Codec
from headway.wire.common import begins

CODEC = Codec(
    port=5672, tls_port=5671, packet_bytes_max=16_000_000, in_flight_max=65_535,
    opens=lambda data: begins(data, *HEADERS.values()), scheme="amqp", subprotocols=("amqp",), filler=EMPTY,
)  # fmt: skip
