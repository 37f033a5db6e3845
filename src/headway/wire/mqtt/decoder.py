"""Decodes one connection's bytes to packets and runs.

Rules:
- The first packet must be a CONNECT (for a client: a CONNACK). The very first byte is checked at once, so that a client
  of another protocol cannot make the broker buffer bytes.
- A packet longer than ``packet_bytes_max`` is refused when its length is read, before it is buffered.
- At most one incomplete packet is kept, and it is not parsed again until it can be complete. Packets that the caller
  did not ask for yet (``items_max``) are kept, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from headway.core.base import ProtocolError, Reason
from headway.core.message import NO_PROPERTIES, Properties, ReceiptRequest, Run, receipt_request, text_bytes
from headway.wire.decoder import Decoder
from headway.wire.dialect import pieces_work, same_column
from headway.wire.mqtt.bodies import BRIDGE, FROM_CLIENT, FROM_SERVER, check_level, read_connect, read_level, version_of
from headway.wire.mqtt.codes import ReasonCode
from headway.wire.mqtt.packets import ACKS, PACKET_NAMES, AckRun, Item, Packet, PubAck, Publish, PublishRun
from headway.wire.mqtt.primitives import PACKET_BYTES_MAX, MqttReader, malformed, read_topic, violation
from headway.wire.mqtt.properties import Fields, read_properties, read_user
from headway.wire.mqtt.scan import extend_run, packet_ids, read_length

Role = Literal["server", "client"]

FORMS = {4: "mqtt-3.1.1", 5: "mqtt-5"}
"""``Run.form`` of frames that can be sent unchanged to any plain QoS 0 subscription of that version."""

_NO_FIELDS = Fields()
ANSWERED_WORK, PACKET_WORK = 2, 1
"""Extra units of a turn's work (server/connections/turn_budget.py): for a publish at QoS 1 or 2, and for each packet
that is neither a publish nor a PUBACK."""
ANSWERS_A_UNIT = 8
"""So many messages of a run that are answered, or acknowledged, together are one more unit."""
HANDSHAKES_A_UNIT = 4
"""So many at QoS 2, or steps of its handshake."""
TOGETHER_MAX = 1024
"""So many messages that are answered, or acknowledgements, are one item."""
SHARE_BYTES, USERS_A_UNIT = 32, 6
"""One more unit for so many bytes of a packet that is not small, or for so many user properties."""
RECEIPT = "receipt"
"""The user property that asks for a receipt."""

CONFIRMED = (0x32, 0x34)
"""The first bytes of PUBLISH at QoS 1 and 2 that is neither a duplicate nor to be retained."""

# First bytes: PUBLISH with QoS 0-2 (DUP only from QoS 1), and each other type with the flags it must have.
_PUBLISH = frozenset({0x30, 0x31, *range(0x32, 0x36), *range(0x3A, 0x3E)})
_FIRST_BYTES = {
    ("server", False): frozenset({0x10}),
    ("server", True): _PUBLISH | ACKS.keys() | {0x82, 0xA2, 0xC0, 0xE0},
    ("client", False): frozenset({0x20}),
    ("client", True): _PUBLISH | ACKS.keys() | {0x90, 0xB0, 0xD0},
}
_FIRST_BYTES_5 = {
    ("server", False): _FIRST_BYTES["server", False],
    ("server", True): _FIRST_BYTES["server", True] | {0xF0},
    ("client", False): _FIRST_BYTES["client", False] | {0xF0},
    ("client", True): _FIRST_BYTES["client", True] | {0xE0, 0xF0},
}


class MqttDecoder(Decoder[Item]):
    """Decodes one peer's bytes, packet by packet.

    ``role`` is the decoder's side: a server reads packets of clients. A client sets its ``version``. A server takes it
    from CONNECT: it is 0 until then, and after a refused CONNECT it is the version of the refusal. ``packet_bytes_max``
    and ``topic_alias_max`` may change between feeds.
    """

    __slots__ = (
        "_aliases", "_bodies", "_first_bytes", "_form", "_open", "_role", "packet_bytes_max", "topic_alias_max",
        "version",
    )  # fmt: skip

    def __init__(
        self,
        packet_bytes_max: int = PACKET_BYTES_MAX,
        *,
        role: Role = "server",
        version: int = 0,
        topic_alias_max: int = 0,
    ) -> None:
        super().__init__()
        self.packet_bytes_max = packet_bytes_max
        self.topic_alias_max = topic_alias_max
        self.version = version
        self._role = role
        self._form = FORMS.get(version)
        self._bodies = FROM_CLIENT if role == "server" else FROM_SERVER
        self._open = False
        self._first_bytes = self._allowed(False)
        self._aliases: dict[int, str] = {}

    def _scan(self, data: bytes, pos: int, items: list[Item], items_max: int) -> int:
        n = len(data)
        bodies = self._bodies
        try:
            while pos < n and len(items) + self.extra_work < items_max:
                first = data[pos]
                if first not in self._first_bytes:
                    raise self._unexpected(first)
                body = pos + 2
                length = data[pos + 1] if body <= n else -1
                if length < 0 or length > 127:
                    length, body = read_length(data, pos + 1, n)
                if length < 0:
                    if length == -1:
                        self.tail.need_bytes = n - pos + 1
                        return pos
                    raise malformed("has a malformed remaining length")
                end = body + length
                if end - pos > self.packet_bytes_max:
                    raise ProtocolError(
                        f"has {end - pos} bytes (at most {self.packet_bytes_max})",
                        reason=Reason.PACKET_TOO_LARGE, code=ReasonCode.PACKET_TOO_LARGE,
                    )
                if end > n:
                    self.tail.need_bytes = end - pos
                    return pos
                if first & 0xF0 == 0x30:
                    pos = self._publish(data, pos, body, end, items)
                    continue
                if length == 2 and first in ACKS:
                    packet_id = data[body] << 8 | data[body + 1]
                    if not packet_id:
                        raise violation("has the packet id 0")
                    if data[end : end + 2] == data[pos : pos + 2] and self._role == "server":
                        pos += self._acks(data[pos : pos + 4 * TOGETHER_MAX], items)
                        continue
                    items.append(ACKS[first](packet_id))
                    self.extra_work += PACKET_WORK * (first != 0x40)
                elif first == 0x10:
                    items.append(self._connect(MqttReader(data, body, end)))
                else:
                    items.append(bodies[first >> 4](MqttReader(data, body, end), self.version))
                    self.extra_work += PACKET_WORK
                    if first == 0x20:
                        self._opened()
                if length >= SHARE_BYTES:
                    self.extra_work += length // SHARE_BYTES
                self.packets += 1
                pos = end
        except ProtocolError as error:
            self.error = ProtocolError(
                f"{PACKET_NAMES[first >> 4]} (packet {self.packets + 1}) {error}", reason=error.reason, code=error.code
            )
            return n
        return pos

    # Opening.

    def _allowed(self, is_open: bool) -> frozenset[int]:
        return (_FIRST_BYTES_5 if self.version == 5 else _FIRST_BYTES)[self._role, is_open]

    def _opened(self) -> None:
        self._open = True
        self._form = FORMS[self.version]
        self._first_bytes = self._allowed(True)

    def _connect(self, reader: MqttReader) -> Packet:
        name, level = read_level(reader)
        # Set before the check, for a refusal is written in this version.
        self.version = version_of(name, level)
        check_level(name, level)
        connect = read_connect(reader, self.version, is_bridge=bool(level & BRIDGE))
        self._opened()
        return connect

    def _unexpected(self, first: int) -> ProtocolError:
        kind = first >> 4
        opening = 1 if self._role == "server" else 2
        if first == 0x16 and not self._open:
            return violation("cannot come first: this looks like TLS on a listener without TLS")
        if kind == opening:
            return violation("comes a second time") if self._open else malformed("has reserved flags set")
        if not self._open:
            if 0x41 <= first <= 0x5A and self.packets == 0:
                return violation(f"cannot come first: {chr(first)!r} may begin an HTTP request or a line of text")
            return violation(f"cannot come before {PACKET_NAMES[opening]}")
        if kind == 3:
            return malformed("has QoS 3" if first & 6 == 6 else "is marked as a duplicate at QoS 0")
        if kind in self._bodies and not (kind == 15 and self.version != 5):
            return malformed(f"has the flags 0x{first & 15:X}, which are reserved")
        return violation(f"is nothing that a {'client' if self._role == 'server' else 'server'} sends")

    # Messages.

    def _publish(self, data: bytes, start: int, body: int, end: int, items: list[Item]) -> int:
        """Decodes the PUBLISH at ``data[start:end]``, and the run that it begins if it can. Returns their end."""
        first = data[start]
        qos = first >> 1 & 3
        pos = body + 2
        if pos > end:
            raise malformed("ends within its topic")
        pos += data[body] << 8 | data[body + 1]
        if pos > end:
            raise malformed("ends within its topic")
        topic_raw = data[body + 2 : pos]
        packet_id, id_at = 0, pos
        if qos:
            if pos + 2 > end:
                raise malformed("ends within its packet id")
            packet_id = data[pos] << 8 | data[pos + 1]
            if not packet_id:
                raise violation("has the packet id 0")
            pos += 2
        fields, properties = _NO_FIELDS, NO_PROPERTIES
        if self.version == 5:
            if pos < end and data[pos] == 0:
                pos += 1
            else:
                fields, properties, pos = self._properties(data, pos, end)
        alias = fields.topic_alias
        topic = read_topic(topic_raw) if alias is None else self._resolve(topic_raw, alias)
        retain = bool(first & 1)
        receipt = _receipt_request(properties) if properties.user and self._role == "server" else None
        if first in CONFIRMED and fields is _NO_FIELDS and properties is NO_PROPERTIES and self._role == "server":
            stop, ends, bodies = extend_run(data, start, body, pos, end, self.packet_bytes_max, id_at)
            if len(ends) > 1:
                return start + self._confirmed_run(topic, data[start:stop], ends, bodies, pos - id_at, qos, items)
        if qos:
            run = Run(topic, data[pos:end], [end - pos], [0], None, qos, retain, properties)
            run.receipt = receipt
            items.append(Publish(run, qos, packet_id, bool(first & 8), fields.message_expiry, fields.identifiers))
            self.packets += 1
            self.extra_work += ANSWERED_WORK
            return end
        if receipt is None:
            stop, ends, bodies = extend_run(data, start, body, pos, end, self.packet_bytes_max)
        else:
            stop, ends, bodies = end, [end - start], [pos - start]
        self.packets += len(ends)
        self.extra_work += pieces_work(ends)
        if fields is _NO_FIELDS and receipt is None:
            form = None if retain else self._form
            items.append(Run(topic, data[start:stop], ends, bodies, form, 0, retain, properties))
            return stop
        # Frames can be sent on unchanged unless they have a property that the broker must change.
        expiry_s, identifiers = fields.message_expiry, fields.identifiers
        fit = alias is None and expiry_s is None and not identifiers and not retain
        run = Run(topic, data[start:stop], ends, bodies, self._form if fit else None, 0, retain, properties)
        run.receipt = receipt
        if expiry_s is None and not identifiers and receipt is None:
            items.append(run)
        else:
            items.append(Publish(run, 0, 0, False, expiry_s, identifiers))
        return stop

    def _confirmed_run(self, topic: str, data: bytes, ends: Sequence[int], bodies: Sequence[int], lead_bytes: int,
                       qos: int, items: list[Item]) -> int:
        """Adds a run of messages whose packet ids come so many bytes before their payloads. Returns its end, which is
        before the first packet id that is 0, and after ``TOGETHER_MAX`` messages: what is left is parsed again."""
        ids = packet_ids(data, bodies[:TOGETHER_MAX], lead_bytes)
        count = len(ids) // 2
        if count < len(ends):
            ends, bodies = ends[:count], bodies[:count]
            data = data[: ends[-1]]
        items.append(PublishRun(Run(topic, data, ends, bodies, None, qos), ids))
        self.packets += count
        self.extra_work += pieces_work(ends) + count // (ANSWERS_A_UNIT if qos == 1 else HANDSHAKES_A_UNIT)
        return len(data)

    def _acks(self, data: bytes, items: list[Item]) -> int:
        """Adds the acknowledgements that ``data`` begins with, of which the first has no packet id 0. Returns their
        end."""
        kind = ACKS[data[0]]
        alike = 1 + same_column(data, data[:2], 4, 4, len(data) // 4 - 1)
        ids = packet_ids(data, range(4, 4 * alike + 1, 4), 2)
        count = len(ids) // 2
        items.append(AckRun(kind, ids))
        self.packets += count
        self.extra_work += count // (ANSWERS_A_UNIT if kind is PubAck else HANDSHAKES_A_UNIT)
        return 4 * count

    def _properties(self, data: bytes, pos: int, end: int) -> tuple[Fields, Properties, int]:
        """Reads the properties of a message. Returns their end, too."""
        block = pos + 1
        if block <= end and data[pos] < 128 and (stop := block + data[pos]) <= end:
            user = read_user(data, block, stop)
            if user:
                self.extra_work += len(user) // USERS_A_UNIT
                return _NO_FIELDS, Properties(user=user), stop
        reader = MqttReader(data, pos, end)
        fields = read_properties(reader, "PUBLISH")
        if fields.identifiers and self._role == "server":
            raise violation("carries a subscription identifier, which only a server may send")
        self.extra_work += (reader.pos - pos) // SHARE_BYTES
        return fields, fields.message(), reader.pos

    def _resolve(self, raw: bytes, alias: int) -> str:
        """Returns the topic of a message with a topic alias."""
        if alias > self.topic_alias_max:
            raise violation(
                f"has the topic alias {alias} (at most {self.topic_alias_max})", ReasonCode.TOPIC_ALIAS_INVALID
            )
        if raw:
            topic = read_topic(raw)
            self.remembered_bytes += text_bytes(topic) - text_bytes(self._aliases.get(alias, ""))
            self._aliases[alias] = topic
            return topic
        known = self._aliases.get(alias)
        if known is None:
            raise violation(f"has the topic alias {alias}, which it never gave a topic")
        return known


def _receipt_request(properties: Properties) -> ReceiptRequest | None:
    """Returns the publisher's request for a receipt, with the response topic and correlation data of the message."""
    value = properties.user_value(RECEIPT)
    if value is None:
        return None
    return receipt_request(
        value, reply_to=properties.response_topic or "", correlation=properties.correlation_data
    )
