"""One HTTP connection: what its client may send ahead of the answers.

aiohttp limits each header and their number, which is a megabyte for one request, and reads up to 32 requests that come
before their turn. Here a head is ``HEAD_BYTES_MAX`` at most, with ``HEADERS_MAX`` headers, which take forty times their
bytes in memory; and while a request waits, nothing is read. Of a body no more is read than its handler takes, and
``READ_BUFFER_BYTES``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from aiohttp import web

from headway.server.http.stream_transport import HEAD_READ_BYTES, READ_BYTES, READ_BYTES_MIN, StreamTransport

HEAD_BYTES_MAX = 32 * 1024
HEADERS_MAX = 64
TURN_BYTES = 128 * 1024
"""Bytes of bodies that are read in a turn, of all connections, about. A body may come in chunks of one byte."""
READ_BUFFER_BYTES = 8 * 1024
IDLE_S = 30.0
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

log = logging.getLogger("headway.admin")


class HttpConnection(web.RequestHandler):
    def __init__(
        self, server: web.Server, loop: asyncio.AbstractEventLoop, everybody: set[web.RequestHandler],
        over: Callable[[HttpConnection], object],
    ) -> None:  # fmt: skip
        """``everybody``: all connections of the server. ``over`` is called when this one is lost."""
        super().__init__(
            server, loop=loop, keepalive_timeout=IDLE_S, access_log=None, logger=log,  # type: ignore[arg-type]
            auto_decompress=False, max_headers=HEADERS_MAX, read_bufsize=READ_BUFFER_BYTES,
        )  # fmt: skip
        self._everybody = everybody
        self._over = over
        self._request: web.Request | None = None
        """The request that is being answered, or the last one."""
        self._head_bytes = 0
        """Bytes of a request whose head has not come whole."""

    def begin(self, request: web.Request) -> None:
        """Takes note of the request that is answered now."""
        self._request = request
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._everybody.add(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._everybody.discard(self)
        self._over(self)

    def data_received(self, data: bytes) -> None:
        of_body = self._body_comes
        super().data_received(data)
        if isinstance(self.transport, StreamTransport):
            fair = max(READ_BYTES_MIN, min(READ_BYTES, TURN_BYTES // len(self._everybody)))
            self.transport.read_bytes = fair if self._body_comes else HEAD_READ_BYTES
        if self._messages:
            self._pause_reading_for_buffer()  # until it is answered
        elif not of_body and self.transport is not None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self.transport.write(_TOO_LARGE)
                self.force_close()

    @property
    def _body_comes(self) -> bool:
        return self._request is not None and not self._request.content.is_eof()
