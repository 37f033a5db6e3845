"""Encodes the broker's packets for one client, in the client's version and within the size it accepts.

Reason strings and user properties are for people. They are left out in 3.1.1, if the client does not want them
(``problem_info`` off: then only CONNACK and DISCONNECT may have them), and if the packet would be longer than the
client allows; user properties are left out first. A packet that is too long without them is not sent (3.1.2.11.4): the
result is empty.
"""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.base import ProtocolError, Reason
from headway.wire.mqtt.codes import SERVER_DISCONNECT_CODES, ReasonCode, connack_code, connack_code_3_1_1, find_code
from headway.wire.mqtt.packets import ACKS, Ack, Connect
from headway.wire.mqtt.primitives import PACKET_BYTES_MAX, write_frame
from headway.wire.mqtt.properties import Fields, UserProperties, write_properties
from headway.wire.mqtt.scan import numbers_of

_DISPENSABLE = ("user", "reason_string", "response_info", "topic_alias_max", "max_packet_bytes", "receive_max")
"""Properties left out of a packet that is too long, in this order. The last ones are the broker's limits, which are not
enforced on a client that was not told of them."""
_REASON_CHARACTERS_MAX = 8192
"""So that a reason string has less than the 65,535 bytes of an MQTT string, whatever its characters."""

_FIRST_BYTES = {kind: first for first, kind in ACKS.items()}


class Replies:
    """Encodes packets for one client. ``version`` is 4 or 5, or 0 while unknown: then only ``refuse`` works."""

    __slots__ = ("packet_bytes_max", "problem_info", "version")

    def __init__(self, version: int, packet_bytes_max: int | None = None, problem_info: bool = True) -> None:
        self.version = version
        self.packet_bytes_max = PACKET_BYTES_MAX if packet_bytes_max is None else packet_bytes_max
        self.problem_info = problem_info

    @classmethod
    def to(cls, connect: Connect) -> Replies:
        """Returns the replies that a CONNECT asks for."""
        return cls(connect.version, connect.max_packet_bytes, connect.request_problem_info)

    def connack(self, code: int = 0, *, session_present: bool = False, fields: Fields | None = None) -> bytes | None:
        """Accepts the client, or refuses it with ``code`` (of MQTT 5). None: 3.1.1 has no such code; close without
        reply.

        ``fields`` are the server's properties: its limits, the assigned client id, ``reason_string``, ``user``. Those
        that do not fit into the packet are removed from it."""
        flags = session_present and not code
        if self.version == 4:
            old = connack_code_3_1_1(code)
            return None if old is None else bytes((0x20, 2, flags, old))
        return self._fit(0x20, bytes((flags, connack_code(code))), fields or Fields())

    def puback(self, packet_id: int, code: int = 0, reason: str = "", user: UserProperties = ()) -> bytes:
        return self._ack(0x40, packet_id, code, reason, user)

    def acks(self, kind: type[Ack], packet_ids: bytes, code: int = 0, reason: str = "") -> bytes:
        """Encodes an acknowledgement of this kind for each packet id; ``packet_ids``: two bytes for each."""
        if reason and self.version != 4:
            return b"".join([self._ack(_FIRST_BYTES[kind], each, code, reason, ()) for each in numbers_of(packet_ids)])
        first = self._ack(_FIRST_BYTES[kind], 0, code, "", ())
        if not first:  # it is longer than the client allows
            return b""
        size = len(first)
        frames = bytearray(first * (len(packet_ids) // 2))
        frames[2::size], frames[3::size] = packet_ids[::2], packet_ids[1::2]
        return bytes(frames)

    def pubrec(self, packet_id: int, code: int = 0, reason: str = "", user: UserProperties = ()) -> bytes:
        return self._ack(0x50, packet_id, code, reason, user)

    def pubrel(self, packet_id: int, code: int = 0, reason: str = "", user: UserProperties = ()) -> bytes:
        return self._ack(0x62, packet_id, code, reason, user)

    def pubcomp(self, packet_id: int, code: int = 0, reason: str = "", user: UserProperties = ()) -> bytes:
        return self._ack(0x70, packet_id, code, reason, user)

    def _ack(self, first: int, packet_id: int, code: int, reason: str, user: UserProperties) -> bytes:
        if self.version == 4 or not (code or reason or user):
            return bytes((first, 2, packet_id >> 8, packet_id & 0xFF))
        fields = self._words(reason, user)
        if fields.reason_string is None and not fields.user and self.packet_bytes_max > 4:
            return bytes((first, 3, packet_id >> 8, packet_id & 0xFF, code))
        return self._fit(first, packet_id.to_bytes(2, "big") + bytes((code,)), fields)

    def suback(self, packet_id: int, codes: Sequence[int], reason: str = "", user: UserProperties = ()) -> bytes:
        """Writes SUBACK. ``codes``: per filter of the SUBSCRIBE, the QoS granted or an error (in 3.1.1 always 0x80)."""
        if self.version == 4:
            return write_frame(0x90, packet_id.to_bytes(2, "big"), bytes(min(code, 0x80) for code in codes))
        return self._fit(0x90, packet_id.to_bytes(2, "big"), self._words(reason, user), bytes(codes))

    def unsuback(self, packet_id: int, codes: Sequence[int], reason: str = "", user: UserProperties = ()) -> bytes:
        if self.version == 4:
            return write_frame(0xB0, packet_id.to_bytes(2, "big"))
        return self._fit(0xB0, packet_id.to_bytes(2, "big"), self._words(reason, user), bytes(codes))

    def pingresp(self) -> bytes:
        return b"\xd0\x00"

    def disconnect(
        self, code: int = 0, reason: str = "", user: UserProperties = (), *, server_reference: str | None = None
    ) -> bytes | None:
        """Tells the client why it is disconnected. None: 3.1.1 has no such packet."""
        if self.version == 4:
            return None
        if code not in SERVER_DISCONNECT_CODES:
            code = ReasonCode.UNSPECIFIED_ERROR
        fields = Fields(
            server_reference=server_reference, reason_string=reason[:_REASON_CHARACTERS_MAX] or None, user=user
        )
        return self._fit(0xE0, bytes((code,)), fields)

    def disconnect_for(self, reason: Reason, text: str = "", user: UserProperties = ()) -> bytes | None:
        """Returns a DISCONNECT with the code of ``reason``; that of slow consumers is *quota exceeded*."""
        return self.disconnect(find_code(reason), text, user)

    def refuse(self, error: ProtocolError, connected: bool) -> bytes | None:
        """Returns the last packet to a client that broke the protocol: DISCONNECT, or CONNACK if it is not connected
        yet. None: close without a packet, as for a client whose first packet was no CONNECT (``version`` 0)."""
        if not self.version:
            return None
        code = error.code or find_code(error.reason)
        if connected:
            return self.disconnect(code, str(error))
        return self.connack(code, fields=Fields(reason_string=str(error)[:_REASON_CHARACTERS_MAX]))

    def auth(self, code: int, method: str, data: bytes | None = None, reason: str = "") -> bytes | None:
        """Writes AUTH, a step of an extended authentication (version 5)."""
        if self.version == 4:
            return None
        fields = self._words(reason, ())
        fields.auth_method, fields.auth_data = method, data
        return self._fit(0xF0, bytes((code,)), fields)

    def _words(self, reason: str, user: UserProperties) -> Fields:
        if not self.problem_info:
            return Fields()
        return Fields(reason_string=reason[:_REASON_CHARACTERS_MAX] or None, user=user)

    def _fit(self, first: int, head: bytes, fields: Fields, tail: bytes = b"") -> bytes:
        frame = write_frame(first, head, write_properties(fields), tail)
        for name in _DISPENSABLE:
            if len(frame) <= self.packet_bytes_max:
                return frame
            if getattr(fields, name):
                setattr(fields, name, () if name == "user" else None)
                frame = write_frame(first, head, write_properties(fields), tail)
        return frame if len(frame) <= self.packet_bytes_max else b""
