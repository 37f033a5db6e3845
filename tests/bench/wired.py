"""A server of three lines for the wires: what a peer says is written down here, and what the wire sends is kept."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Scripted:
    """Answers the n-th thing a client says with the n-th answer, whatever was said, one client."""

    def __init__(self, answers: list[bytes], greeting: bytes = b"") -> None:
        self.heard: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._answers, self._greeting = answers, greeting
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        with sock:
            sock.sendall(self._greeting)
            for answer in self._answers:
                said = sock.recv(65_536)
                if not said:
                    return
                self.heard.append(said)
                sock.sendall(answer)
            with contextlib.suppress(ConnectionError):
                while sock.recv(65_536):
                    pass

    def close(self) -> None:
        self._listener.close()


@contextmanager
def scripted(answers: list[bytes], greeting: bytes = b"") -> Iterator[Scripted]:
    server = Scripted(answers, greeting)
    try:
        yield server
    finally:
        server.close()
