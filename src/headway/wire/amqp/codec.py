"""The codec of AMQP for code that knows no protocol. A consumer without a prefetch gets as much as there is."""

from __future__ import annotations

from headway.wire.amqp.codes import OFFERED
from headway.wire.amqp.dialect import AmqpDialect, address_in, lead_bytes, native_at
from headway.wire.amqp.kept import find_bytes, numbering_of, read_common, write_common
from headway.wire.amqp.primitives import read_bare_table, write_table
from headway.wire.amqp.properties import read, without_headers
from headway.wire.codec import Codec, QueueForm
from headway.wire.common import begins

OLDER = b"AMQP\x01"
"""The start of the header of 0-8 and 0-9."""

QUEUES = QueueForm(
    AmqpDialect(), lambda offsets: AmqpDialect(topics=True, offsets=offsets), lead_bytes, write_table,
    lambda table: read_bare_table(table[4:], "arguments"), lambda raw: read(raw).headers, without_headers, write_common,
    read_common, find_bytes, address_in, native_at, numbering_of,
)
CODEC = Codec(
    port=5672, tls_port=5671, packet_bytes_max=16_000_000, in_flight_max=65_535,
    opens=lambda data: begins(data, OFFERED, OLDER), queues=QUEUES,
)  # fmt: skip
