"""MQTT 3.1.1 at QoS 0; 5 where a subscription has options."""

from __future__ import annotations

import socket

from bench.errors import PeerFailed
from bench.wires.packets import connect, encode_publish, encode_subscribe
from bench.wires.wire import Levels, Wire, dial, take


class Mqtt(Wire):
    """MQTT's wire; ``version`` 4 is MQTT 3.1.1."""

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
        sock.sendall(encode_subscribe(1, ["/".join(levels)], version=self.version, user=user))
        answer = short_answer(sock)
        if answer[-1] > 2:
            raise PeerFailed(f"SUBACK says {answer[-1]:#04x}")

    def publication(self, sock: socket.socket, levels: Levels, payload: bytes, number: int = 0) -> bytes:
        return encode_publish("/".join(levels), payload, version=self.version)


def short_answer(sock: socket.socket) -> bytes:
    """The body of one packet that is shorter than 128 bytes."""
    return take(sock, take(sock, 2)[1])
