"""Requests to services of the config end in time, also those to a service that sends a byte now and then."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from urllib.request import Request

import pytest

from headway.server.logins.asking import fetch

APART_S, BYTES_MAX = 0.02, 500
"""It would send for ten seconds."""


class Dripping:
    """A service that sends ``first`` and then one byte after the other, until its client is gone."""

    def __init__(self, first: bytes) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._first, self._over = first, threading.Event()
        self.sent = 0
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        sock, _ = self._listening.accept()
        with sock, suppress(OSError):
            sock.recv(65_536)
            sock.sendall(self._first)
            while self.sent < BYTES_MAX and not self._over.wait(APART_S):
                sock.sendall(b"x")
                self.sent += 1

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._listening.close()


@pytest.fixture(params=[b"", b"HTTP/1.1 200 OK\r\nX-", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"])
def dripping(request: pytest.FixtureRequest) -> Iterator[Dripping]:
    service = Dripping(request.param)
    yield service
    service.close()


def test_a_service_that_sends_byte_by_byte_has_no_more_time_than_any_other(dripping: Dripping) -> None:
    with pytest.raises(TimeoutError):
        fetch(Request(dripping.url), 0.2, 1_000)
    assert dripping.sent < BYTES_MAX, "it was left to send all it has"
