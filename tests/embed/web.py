"""The program's own web server, uvicorn, and requests to it."""

from __future__ import annotations

import asyncio
import http.client
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn
from tests.interop.waiting import PATIENCE_S, holds


@asynccontextmanager
async def served(app: Any, **more: Any) -> AsyncIterator[int]:
    """Serves an application on this loop. Its port. The send buffers of its connections do not grow, as they do where
    the kernel decides."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
    sock.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", **more))
    server.capture_signals = _no_signals  # type: ignore[method-assign]
    serving = asyncio.create_task(server.serve([sock]))
    await holds(lambda: server.started or serving.done())
    try:
        yield sock.getsockname()[1]
    finally:
        server.should_exit = True
        server.force_exit = True
        await serving


@contextmanager
def _no_signals() -> Iterator[None]:
    yield


Answered = tuple[int, bytes, dict[str, str]]


def asked(port: int, path: str, method: str = "GET", body: Any = None, **headers: str) -> Answered:
    """Status, body and headers of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        chunked = body is not None and not isinstance(body, bytes)
        connection.request(method, path, body, headers, encode_chunked=chunked)
        answer = connection.getresponse()
        return answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()}
    finally:
        connection.close()


async def ask(port: int, *arguments: Any, **headers: str) -> Answered:
    return await asyncio.to_thread(asked, port, *arguments, **headers)
