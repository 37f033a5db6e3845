"""MQTT 3.1.1 at QoS 0; 5 where a subscription has options."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from bench.errors import PeerFailed
from bench.wires.packets import connect, encode_publish, encode_subscribe
from bench.wires.wire import Frame, Levels, NamedQueueWire, Wire, dial, take
from headway.wire.mqtt.packets import TopicRequest

PACKET_IDS = 65_535
PUBREC, PUBREL, PUBCOMP = b"\x50", b"\x62", b"\x70"
STEP_BYTES = 4
"""The size of each of them."""


class Mqtt(Wire):
    """MQTT's wire; ``version`` 4 is MQTT 3.1.1."""

    qos = 0

    def __init__(self, version: int = 4) -> None:
        self.version = version

    def dial(self, port: int) -> socket.socket:
        return dial(port)

    def open(self, port: int, name: str) -> socket.socket:
        sock = self.dial(port)
        sock.sendall(connect(name, self.version))
        answer = short_answer(sock)
        if answer[1] != 0:
            raise PeerFailed(f"CONNACK says {answer[1]:#04x}")
        return sock

    def subscribe(self, sock: socket.socket, levels: Levels, conflate: str | None = None) -> None:
        user = (("conflate", conflate),) if conflate is not None else ()
        request = TopicRequest("/".join(levels), self.qos)
        sock.sendall(encode_subscribe(1, [request], version=self.version, user=user))
        answer = short_answer(sock)
        if answer[-1] > 2:
            raise PeerFailed(f"SUBACK says {answer[-1]:#04x}")

    def publication(self, sock: socket.socket, levels: Levels, payload: bytes, number: int = 0) -> bytes:
        return encode_publish("/".join(levels), payload, version=self.version)


class MqttAcknowledged(Mqtt, NamedQueueWire):
    """MQTT 3.1.1 at QoS 1: subscribers acknowledge each delivery by its packet identifier."""

    qos = 1

    def publication(self, sock: socket.socket, levels: Levels, payload: bytes, number: int = 0) -> bytes:
        packet_id = number % PACKET_IDS + 1
        return encode_publish("/".join(levels), payload, version=self.version, qos=self.qos, packet_id=packet_id)

    def names_in(self, data: bytes, frame: Frame) -> tuple[list[bytes], int]:
        used = len(data) - len(data) % frame.size_bytes
        return [data[at - 2 : at] for at in range(frame.payload_at, used, frame.size_bytes)], used

    def acknowledgements_of(self, sock: socket.socket, queue: Levels, names: Sequence[bytes]) -> bytes:
        return b"".join([b"\x40\x02" + name for name in names])


class MqttExactlyOnce(MqttAcknowledged):
    """MQTT 3.1.1 at QoS 2. A delivery is settled with its PUBREL. Publishers and subscribers carry out the handshake of
    all that one read brings with one write."""

    qos = 2

    def answers_to(self, sock: socket.socket, queue: Levels, data: bytes, frame: Frame) -> tuple[int, bytes, int]:
        at, settled, answers = 0, 0, list[bytes]()
        while at < len(data):
            kind = data[at : at + 1]
            size = STEP_BYTES if kind == PUBREL else frame.size_bytes
            kinds = data[at::size]
            count = min(len(kinds) - len(kinds.lstrip(kind)), (len(data) - at) // size)
            if not count:
                break
            stop, place = at + count * size, at + (2 if kind == PUBREL else frame.payload_at - 2)
            answer, ids = PUBCOMP if kind == PUBREL else PUBREC, (data[place:stop:size], data[place + 1 : stop : size])
            answers.append(steps(answer, *ids))
            settled += count if kind == PUBREL else 0
            at = stop
        return settled, b"".join(answers), at


def steps(kind: bytes, high: bytes, low: bytes) -> bytes:
    """Returns packets of the handshake for packet identifiers of which these are the first and second bytes."""
    packets = bytearray((kind + b"\x02\0\0") * len(low))
    packets[2::STEP_BYTES], packets[3::STEP_BYTES] = high[: len(low)], low
    return bytes(packets)


class PubComps:
    """Counts the messages of a publisher at QoS 2 whose handshakes are done. ``answers`` has PUBRELs to be sent."""

    def __init__(self) -> None:
        self.count = 0
        self.answers = b""
        self._rest = b""

    def take(self, data: bytes) -> None:
        """Raises PeerFailed for anything but PUBREC and PUBCOMP."""
        data = self._rest + data
        stop = len(data) - len(data) % STEP_BYTES
        data, self._rest = data[:stop], data[stop:]
        at, answers = 0, [self.answers]
        while at < len(data):
            kinds = data[at::STEP_BYTES]
            if kinds[:1] not in (PUBREC, PUBCOMP):
                raise PeerFailed("answered something other than a step of the handshake")
            count = len(kinds) - len(kinds.lstrip(kinds[:1]))
            stop = at + count * STEP_BYTES
            if kinds[:1] == PUBCOMP:
                self.count += count
            else:
                answers.append(steps(PUBREL, data[at + 2 : stop : STEP_BYTES], data[at + 3 : stop : STEP_BYTES]))
            at = stop
        self.answers = b"".join(answers)


class PubAcks:
    """Counts the acknowledgements of a publisher's messages at QoS 1."""

    answers = b""

    SIZE = 4

    def __init__(self) -> None:
        self.count = 0
        self._rest = 0

    def take(self, data: bytes) -> None:
        """Raises PeerFailed for anything but acknowledgements."""
        first = -self._rest % self.SIZE
        if data[first :: self.SIZE].strip(b"\x40"):
            raise PeerFailed("answered something other than an acknowledgement")
        whole, self._rest = divmod(self._rest + len(data), self.SIZE)
        self.count += whole


def short_answer(sock: socket.socket) -> bytes:
    """The body of one packet that is shorter than 128 bytes."""
    return take(sock, take(sock, 2)[1])
