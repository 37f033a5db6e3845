"""Requests to services that are named in the config: they follow no redirects, and no proxy of the environment.

They end in time, whatever the service does: one that sends a byte now and then has no more time than any other.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


class _Deadline:
    """Ends the connection of one request when its time is over. That is noticed by the thread that waits for bytes."""

    def __init__(self, timeout_s: float) -> None:
        self.over = False
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(timeout_s, self._end)
        self._timer.daemon = True
        self._timer.start()

    def watch(self, sock: socket.socket) -> None:
        """Raises TimeoutError if the time is over."""
        with self._lock:
            self._socket = sock
            if self.over:
                raise TimeoutError("timed out")

    def close(self) -> None:
        with self._lock:
            self._socket = None
        self._timer.cancel()

    def _end(self) -> None:
        with self._lock:
            self.over = True
            if self._socket is not None:
                with suppress(OSError):
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # TLS is left as it is: a thread is in it


class _Connection(HTTPConnection):
    def __init__(self, deadline: _Deadline, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._deadline = deadline

    def connect(self) -> None:
        super().connect()
        self._deadline.watch(self.sock)


class _TlsConnection(_Connection, HTTPSConnection):
    """``connect`` of its base goes on to that of ``HTTPSConnection``, so the deadline watches the socket with TLS."""


class _PlainHandler(HTTPHandler):
    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, request: Request) -> HTTPResponse:
        return self.do_open(partial(_Connection, self._deadline), request)


class _TlsHandler(HTTPSHandler):
    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def https_open(self, request: Request) -> HTTPResponse:
        return self.do_open(partial(_TlsConnection, self._deadline), request)


def fetch(request: Request, timeout_s: float, bytes_max: int) -> tuple[int, bytes]:
    """Returns the status and the first bytes of the answer, one more than ``bytes_max`` at most. It takes ``timeout_s``
    and the time to connect at the longest. Raises OSError, ValueError, HTTPException."""
    deadline = _Deadline(timeout_s)
    opener = build_opener(ProxyHandler({}), _NoRedirects(), _PlainHandler(deadline), _TlsHandler(deadline))
    try:
        with opener.open(request, timeout=timeout_s) as response:
            found = response.status, response.read(bytes_max + 1)
    except (OSError, ValueError, HTTPException):
        if deadline.over:
            raise TimeoutError("timed out") from None
        raise
    finally:
        deadline.close()
    if deadline.over:
        raise TimeoutError("timed out")
    return found
