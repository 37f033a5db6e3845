"""Durable sessions of MQTT 5: subscribed with QoS 1, disconnected, and connected again to take what waited."""

from __future__ import annotations

import socket

from bench.errors import PeerFailed
from bench.wires.mqtt import short_answer
from bench.wires.packets import connect as encode_connect
from bench.wires.packets import encode_disconnect, encode_subscribe, encode_unsubscribe
from bench.wires.wire import Levels, dial
from headway.wire.mqtt.packets import DisconnectPacket, TopicRequest

PUBLISH = 3
NUMBER_BYTES = 8


def connect(port: int, name: str) -> socket.socket:
    """Opens the session again, or makes it; whatever waits for it follows at once."""
    sock = dial(port)
    sock.sendall(encode_connect(name, 5, keep=True))
    answer = short_answer(sock)
    if answer[1]:
        raise PeerFailed(f"CONNACK says {answer[1]:#04x}")
    return sock


def subscribe(sock: socket.socket, levels: Levels) -> None:
    sock.sendall(encode_subscribe(1, [TopicRequest("/".join(levels), qos=1)]))
    answer = short_answer(sock)
    if answer[-1] != 1:
        raise PeerFailed(f"SUBACK says {answer[-1]:#04x}")


def leave(sock: socket.socket) -> None:
    sock.sendall(encode_disconnect())
    sock.close()


def come_and_go(port: int, name: str, levels: Levels) -> socket.socket:
    """Connects, subscribes, unsubscribes and ends the session, all said at once; over when the broker closes."""
    sock, filter = dial(port), "/".join(levels)
    sock.sendall(encode_connect(name, 5, keep=True) + encode_subscribe(1, [TopicRequest(filter, qos=1)]))
    sock.sendall(encode_unsubscribe(2, [filter]) + encode_disconnect(DisconnectPacket(session_expiry_s=0)))
    return sock


class Deliveries:
    """Reads deliveries with QoS 1: their numbers, and the bytes that acknowledge them."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()
        self.count = 0
        self._rest = b""

    def take(self, data: bytes) -> bytes:
        """The acknowledgements of all that is whole by now."""
        data = self._rest + data
        at, acks = 0, []
        while (body := _body(data, at)) is not None:
            start, stop = body
            if data[at] >> 4 == PUBLISH:
                ids = start + 2 + int.from_bytes(data[start : start + 2], "big")
                acks.append(b"\x40\x02" + data[ids : ids + 2])
                begins = ids + 3 + data[ids + 2]
                self.numbers.add(int.from_bytes(data[begins : begins + NUMBER_BYTES], "big"))
                self.count += 1
            at = stop
        self._rest = data[at:]
        return b"".join(acks)


def _body(data: bytes, at: int) -> tuple[int, int] | None:
    """Returns where the packet at this place has its body, and ends; None: it is not whole."""
    length = shift = 0
    for place in range(at + 1, min(at + 5, len(data))):
        length |= (data[place] & 0x7F) << shift
        shift += 7
        if data[place] < 0x80:
            stop = place + 1 + length
            return (place + 1, stop) if stop <= len(data) else None
    return None
