"""The wire of the bare sender (``bench.sender``), without a protocol: the published bytes are delivered as they are."""

from __future__ import annotations

import socket

from bench.errors import PeerFailed
from bench.wires.packets import encode_publish
from bench.wires.wire import Levels, Wire, dial, take

SUBSCRIBE, SUBSCRIBED = b"S", b"k"


class Bare(Wire):
    """The bare sender's client: sends as many bytes as MQTT needs for the message, so that the limit is exact."""

    def open(self, port: int, name: str) -> socket.socket:
        return dial(port)

    def subscribe(self, sock: socket.socket, levels: Levels, conflate: str | None = None) -> None:
        sock.sendall(SUBSCRIBE)
        if take(sock, 1) != SUBSCRIBED:
            raise PeerFailed("the bare sender did not take the subscriber")

    def publication(self, sock: socket.socket, levels: Levels, payload: bytes, number: int = 0) -> bytes:
        return encode_publish("/".join(levels), payload, version=4)
