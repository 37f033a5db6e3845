"""The codec of STOMP for code that knows no protocol."""

from __future__ import annotations

from headway.wire.codec import Codec
from headway.wire.common import begins
from headway.wire.stomp.versions import HEARTBEAT

CODEC = Codec(
    port=61613, tls_port=61614, packet_bytes_max=32_000_000, in_flight_max=65_535,
    opens=lambda data: begins(data, b"CONNECT\n", b"CONNECT\r", b"STOMP\n", b"STOMP\r", b"\n", b"\r\n"),
    subprotocols=("v12.stomp", "v11.stomp", "v10.stomp"), filler=HEARTBEAT, texts=True,
)  # fmt: skip
