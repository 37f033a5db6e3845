"""Redis: PUBLISH, SUBSCRIBE and, for wildcards, PSUBSCRIBE. Redis's ``*`` may span levels too, which nothing here
needs."""

from __future__ import annotations

import socket

from bench.errors import PeerFailed
from bench.wires.wire import Levels, Wire, dial, joined, take


class Resp(Wire):
    def open(self, port: int, name: str) -> socket.socket:
        sock = dial(port)
        sock.sendall(command(b"PING"))
        _expect(sock, b"+PONG\r\n")
        return sock

    def subscribe(self, sock: socket.socket, levels: Levels, conflate: str | None = None) -> None:
        verb = b"psubscribe" if "+" in levels else b"subscribe"
        channel = _channel(levels)
        sock.sendall(command(verb, channel))
        _expect(sock, b"*3\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n:1\r\n" % (len(verb), verb, len(channel), channel))

    def publication(self, sock: socket.socket, levels: Levels, payload: bytes, number: int = 0) -> bytes:
        return command(b"PUBLISH", _channel(levels), payload)

    def will_publish(self, sock: socket.socket) -> None:
        """Turns off the answers with the number of receivers: the publisher reads none."""
        sock.sendall(command(b"CLIENT", b"REPLY", b"OFF"))


def _channel(levels: Levels) -> bytes:
    return joined(levels, "/").encode()


def command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def _expect(sock: socket.socket, answer: bytes) -> None:
    said = take(sock, len(answer))
    if said != answer:
        raise PeerFailed(f"answered {said.decode('latin-1').strip()}")
