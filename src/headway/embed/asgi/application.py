"""The application: to each request, WebSocket and life span of the web server, its part here.

Below the path that it is mounted at it has

- a WebSocket, at ``/mqtt``, ``/stomp``, ``/ws`` and ``/`` itself, for MQTT and STOMP (sockets.py);
- the admin API with all of its paths: ``/v1/...``, server-sent events, ``/metrics`` (requests.py);
- ``/javascript/headway-view.js``, the client for pages.

Who may come in is decided here, because the web server has the address (admittance.py).
"""

from __future__ import annotations

import asyncio
import json
from typing import Protocol

from headway.core.base import HeadwayError
from headway.embed.asgi.admittance import Admittance, Came, Closed, Message, Receive, Send
from headway.embed.asgi.requests import pass_on
from headway.embed.asgi.sockets import carry
from headway.server.running import Running
from headway.server.websocket import Refusal

POLICY_VIOLATION = 1008


class Host(Protocol):
    """The broker, as its application sees it."""

    @property
    def running(self) -> Running: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...


class Application:
    """An ASGI 3 application. Alone, without a framework around it, it starts and stops the broker with the server."""

    def __init__(self, broker: Host) -> None:
        self._broker = broker
        self._admittance = Admittance()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "lifespan":
            await self._live(receive, send)
        elif kind == "websocket":
            await self._websocket(scope, receive, send)
        elif kind == "http":
            await self._http(scope, receive, send)

    def _running(self) -> Running:
        """Raises Refusal."""
        try:
            running = self._broker.running
        except HeadwayError as error:
            raise Closed(str(error)) from None
        if running.engine.loop is not asyncio.get_running_loop():
            raise Closed("the broker runs on another loop than this web server: start it in the server's lifespan")
        return running

    async def _http(self, scope: Message, receive: Receive, send: Send) -> None:
        came = Came(scope)
        try:
            running = self._running()
            self._admittance.check_request(running.engine, came)
        except Refusal as no:
            body = json.dumps({"error": str(no)}).encode()
            headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
            await send({"type": "http.response.start", "status": no.status, "headers": headers})
            await send({"type": "http.response.body", "body": body})
            return
        await pass_on(running.admin.connection(), came, receive, send)

    async def _websocket(self, scope: Message, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        came = Came(scope)
        try:
            running = self._running()
            admitted = self._admittance.check_socket(running.engine, came)
        except Refusal as no:
            await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": str(no)[:120]})
            return
        await carry(running.engine, admitted, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Raises nothing: the server is told."""
        await receive()
        try:
            await self._broker.start()
        except (HeadwayError, OSError) as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        try:
            await receive()
        finally:
            await self._broker.stop()
        await send({"type": "lifespan.shutdown.complete"})
