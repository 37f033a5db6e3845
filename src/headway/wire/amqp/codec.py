"""AMQP, to those who know no protocol. Who sets no prefetch wants whatever there is."""

from __future__ import annotations

from headway.wire.amqp.dialect import AmqpDialect
from headway.wire.codec import Codec

CODEC = Codec(port=5672, packet_bytes_max=16_000_000, in_flight_max=65_535, queues=AmqpDialect())
