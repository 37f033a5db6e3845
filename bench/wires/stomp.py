"""STOMP 1.1, transient messages: topics without acknowledgements; or one queue that consumers share, with them.

A delivery of Headway has one size, for its number has fifteen digits. That of others grows with its number. So their
ends are counted; line feeds between frames, which ActiveMQ sends, are not looked at.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence

from bench.errors import PeerFailed
from bench.wires.wire import Frame, Levels, NamedQueueWire, Wire, dial, joined, take

PREFETCH = 100
NAME = re.compile(rb"message-id:[^\n]*\n")


class Stomp(Wire):
    kind = "topic"
    ends_with = b"\0"

    def open(self, port: int, name: str) -> socket.socket:
        sock = dial(port)
        sock.sendall(f"CONNECT\naccept-version:1.1\nclient-id:{name}-{sock.getsockname()[1]}\n\n\0".encode())
        expect(sock, "CONNECTED")
        return sock

    def subscribe(self, sock: socket.socket, levels: Levels, conflate: str | None = None) -> None:
        sock.sendall(frame("SUBSCRIBE", id="1", destination=self.destination(levels), ack="auto", receipt="1"))
        expect(sock, "RECEIPT")

    def destination(self, levels: Levels) -> str:
        return f"/{self.kind}/{joined(levels)}"

    def publication(self, sock: socket.socket, levels: Levels, payload: bytes, number: int = 0) -> bytes:
        headers = {"destination": self.destination(levels), "content-length": str(len(payload))}
        return frame("SEND", payload, **headers)


class StompQueue(Stomp, NamedQueueWire):
    """One queue that consumers share, neither durable nor exclusive; each has up to ``PREFETCH`` messages and
    acknowledges them one by one."""

    kind = "queue"

    def subscribe(self, sock: socket.socket, levels: Levels, conflate: str | None = None) -> None:
        prefetch = {"prefetch-count": str(PREFETCH), "activemq.prefetchSize": str(PREFETCH)}
        terms = {"durable": "false", "ack": "client-individual", **prefetch}
        sock.sendall(frame("SUBSCRIBE", b"", id="1", destination=self.destination(levels), receipt="1", **terms))
        expect(sock, "RECEIPT")

    def names_in(self, data: bytes, frame: Frame) -> tuple[list[bytes], int]:
        used = data.rfind(self.ends_with) + 1
        return NAME.findall(data, 0, used), used

    def acknowledgements_of(self, sock: socket.socket, queue: Levels, names: Sequence[bytes]) -> bytes:
        return b"".join([b"ACK\nsubscription:1\n%b\n\0" % name for name in names])


def frame(command: str, body: bytes = b"", **headers: str) -> bytes:
    head = "".join(f"{name}:{value}\n" for name, value in headers.items())
    return f"{command}\n{head}\n".encode() + body + b"\0"


def expect(sock: socket.socket, command: str) -> None:
    """Takes the frame that has to come now."""
    got = b""
    while not got.endswith(b"\0"):
        got += take(sock, 1)
    if not got.lstrip(b"\n").startswith(f"{command}\n".encode()):
        raise PeerFailed(f"answered {got.decode('latin-1', 'replace')!r}")
