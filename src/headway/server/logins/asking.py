"""Requests to services that are named in the config: they follow no redirects, and no proxy of the environment.

They end in time, whatever the service does: one that sends a byte now and then has no more time than any other.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, ParamSpec, TypeVar
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

# -- asking ------------------------------------------------------------------------------------------------------------


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


# -- attempt -----------------------------------------------------------------------------------------------------------
#
# Attempts to log in, and refusals.


Wanted = Callable[[], bool]
"""Says whether a login is still to be checked."""


class Attempt(NamedTuple):
    """A login that is tried."""

    name: str
    password: bytes
    address: str
    """Without a port."""
    client: str = ""
    """The client id; empty where the protocol has none."""
    listener: str = ""
    """Empty at the admin API."""


class Refusal(NamedTuple):
    """A login that failed, and why, in the words that the client is told."""

    text: str
    away: bool = False
    """Whether nobody was there to check it, so that it is no wrong guess."""
    checked: bool = True
    """Whether it came to a check at all."""


# -- waiting threads ---------------------------------------------------------------------------------------------------
#
# Threads for calls that wait for somebody else: a service that may never answer.
#
# A process that ends joins the threads of a ``ThreadPoolExecutor``, however long their calls still take. These it
# leaves behind.


P = ParamSpec("P")
T = TypeVar("T")


class WaitingThreads(Executor):
    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        """Calls that wait for a thread; None: there are no more."""
        self._futures: dict[Future[Any], None] = {}
        """The results that nobody works at yet."""
        self._idle = threading.Semaphore(0)
        self._threads = 0
        self._abandoned = False
        """Set when nobody waits for results any more."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Only from one thread."""
        future: Future[T] = Future()
        self._futures[future] = None

        def call() -> None:
            self._futures.pop(future, None)
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except Exception as error:  # noqa: BLE001  it is that of who waits for the result
                if not self._abandoned:
                    future.set_exception(error)
            else:
                if not self._abandoned:
                    future.set_result(result)

        self._calls.put(call)
        if not self._idle.acquire(blocking=False) and self._threads < self._most:
            self._threads += 1
            threading.Thread(target=self._work, name=f"{self._name}_{self._threads}", daemon=True).start()
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:
        """Ends the threads after the calls that were made; ``cancel_futures``: after those under way, whose results are
        dropped. Waits for none."""
        self._abandoned = cancel_futures
        if cancel_futures:
            for future in list(self._futures):
                future.cancel()
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._next()) is not None:
            call()
        self._calls.put(None)  # for the next thread

    def _next(self) -> Callable[[], None] | None:
        try:
            return self._calls.get_nowait()
        except Empty:
            self._idle.release()
            return self._calls.get()
