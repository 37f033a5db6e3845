"""Protocols in a WebSocket, for subscribers; who publishes does so over TCP, as a feed's source does.

A frame's header is no delivery. Where the broker sends each message in a frame of its own, the header counts as a part
of each delivery; where frames have many messages, it is a few bytes in thousands, and does not count.
"""

from __future__ import annotations

import json
import socket
import zlib

from bench.errors import PeerFailed
from bench.wires.mqtt import Mqtt
from bench.wires.nats import OPTIONS, Nats
from bench.wires.packets import connect, encode_subscribe
from bench.wires.websocket import COMPRESSED, DEFLATE, TAIL, frame, upgrade
from bench.wires.wire import HOST, Levels, dial, joined, take

PUBLISHERS = ("publisher", "measure-out")


class Web:
    """The common part of the wires in a WebSocket."""

    slack_bytes = 16
    plain_port = 0
    """The port of the same broker's listener without WebSocket."""
    deflated = False
    """Whether subscribers take compressed messages."""
    answer = ""
    """The head of the last answer to a subscriber's request."""

    def upgraded(self, port: int, path: str, subprotocol: str) -> socket.socket:
        sock = dial(port)
        self.answer = upgrade(sock, path, HOST, subprotocol, *((DEFLATE,) if self.deflated else ()))
        return sock


class MqttWeb(Web, Mqtt):
    def open(self, port: int, name: str) -> socket.socket:
        if name in PUBLISHERS:
            return super().open(self.plain_port, name)
        sock = self.upgraded(port, "/mqtt", "mqtt")
        sock.sendall(frame(connect(name, self.version)))
        if (answer := take_frame(sock))[3] != 0:
            raise PeerFailed(f"CONNACK says {answer[3]:#04x}")
        return sock

    def subscribe(self, sock: socket.socket, levels: Levels, conflate: str | None = None) -> None:
        sock.sendall(frame(encode_subscribe(1, ["/".join(levels)], version=self.version)))
        if (answer := take_frame(sock))[-1] > 2:
            raise PeerFailed(f"SUBACK says {answer[-1]:#04x}")


class NatsWeb(Web, Nats):
    def open(self, port: int, name: str) -> socket.socket:
        if name in PUBLISHERS:
            return super().open(self.plain_port, name)
        sock = self.upgraded(port, "/", "")
        take_frame(sock)
        sock.sendall(frame(b"CONNECT " + json.dumps(OPTIONS | {"name": name}).encode() + b"\r\nPING\r\n"))
        take_pong(sock)
        return sock

    def subscribe(self, sock: socket.socket, levels: Levels, conflate: str | None = None) -> None:
        sock.sendall(frame(f"SUB {joined(levels)} 1\r\nPING\r\n".encode()))
        take_pong(sock)


def take_frame(sock: socket.socket) -> bytes:
    """Reads the payload of one frame."""
    first, size = take(sock, 2)
    if size > 125:
        size = int.from_bytes(take(sock, 2 if size == 126 else 8), "big")
    payload = take(sock, size)
    return zlib.decompressobj(-15).decompress(payload + TAIL) if first & COMPRESSED else payload


def take_pong(sock: socket.socket) -> None:
    """Reads up to the answer to our ping."""
    while not (said := take_frame(sock)).endswith(b"PONG\r\n"):
        if not said.endswith(b"PING\r\n"):
            raise PeerFailed(said.decode("latin-1").strip())
