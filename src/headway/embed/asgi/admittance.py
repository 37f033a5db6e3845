"""Admittance: who may come in through the program's own web server.

The broker's listeners decide by where they listen; here only the web server knows. So these are the rules:

- Pages come in if they are from this very host, as at any WebSocket of the broker (``server/websocket/handshake.py``),
  or from one of ``origins`` in ``[listeners.asgi]``.
- With users (``[auth]``), clients log in, from wherever they come.
- Without users, clients of this machine come in, and only under a host name that no page can have made up. With
  ``allow_anonymous = true`` everybody does, but for operators' requests: those are for this machine only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from functools import cached_property
from typing import Any, NamedTuple

from headway.server.config import ASGI_LISTENER, ListenerTable
from headway.server.engine import Engine
from headway.server.http import DATA, PUBLIC
from headway.server.protocols import SUBPROTOCOLS
from headway.server.websocket import Refusal, Request, Rules, check_page, is_loopback, is_no_name, subprotocol

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Closed(Refusal):
    """The broker cannot be had at all."""

    def __init__(self, text: str) -> None:
        super().__init__(503, text)


class Came:
    """A request, as the web server tells of it (its *scope*)."""

    def __init__(self, scope: Message) -> None:
        root, path = scope.get("root_path", "").rstrip("/"), scope["path"]
        self.path: str = path.removeprefix(root) or "/" if f"{path}/".startswith(f"{root}/") else path
        """The path below that which the application is mounted at."""
        self.method: str = scope.get("method", "GET")
        self.query: bytes = scope.get("query_string", b"")
        self.headers: list[tuple[bytes, bytes]] = list(scope["headers"])
        self.secure = scope.get("scheme") in ("https", "wss")
        client = scope.get("client") or ("", 0)
        self.host, self.port = str(client[0]), int(client[1] or 0)
        self.offered: list[str] = list(scope.get("subprotocols", ()))

    @property
    def address(self) -> str:
        return f"{self.host or 'unknown'}:{self.port}"

    @property
    def is_here(self) -> bool:
        """Whether the client is on this machine. A web server at a socket of the file system knows no address."""
        return not self.host or is_loopback(self.host)

    @property
    def is_one_line_each(self) -> bool:
        """Whether no part of it has a line end, so that it stays one request when it is written out."""
        parts = (self.method.encode(), self.query, *(part for header in self.headers for part in header))
        return not any(end in part for part in parts for end in (b"\r", b"\n")) and b" " not in self.query

    @cached_property
    def request(self) -> Request:
        found: dict[str, list[str]] = {}
        for name, value in self.headers:
            found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        if self.offered:
            found["sec-websocket-protocol"] = [", ".join(self.offered)]
        return Request(self.method, self.path, found)


class Admitted(NamedTuple):
    """A client of the WebSocket."""

    address: str
    subprotocol: str
    protocol: str
    table: ListenerTable


class Admittance:
    """Raises Refusal."""

    def check_request(self, engine: Engine, came: Came) -> None:
        if not came.is_one_line_each:
            raise Refusal(400, "the request has a line end where there may be none")
        if came.path.startswith(PUBLIC):
            return
        table = engine.settings.listeners[ASGI_LISTENER]
        host = check_page(came.request, _rules(table, came))
        data = came.path.startswith(DATA)
        if not engine.settings.auth.asks:
            self._check_stranger(came, host, everybody=bool(table.allow_anonymous_given) and data)

    def check_socket(self, engine: Engine, came: Came) -> Admitted:
        table = engine.settings.listeners[ASGI_LISTENER]
        rules = _rules(table, came)
        if came.path not in table.paths:
            raise Refusal(404, f"there is nothing here; the path of the WebSocket is {table.paths[0]}")
        host = check_page(came.request, rules)
        chosen = subprotocol(came.request, rules)
        if not engine.settings.auth.checks_names:
            self._check_stranger(came, host, everybody=bool(table.allow_anonymous_given))
        if engine.connections.by_listener[ASGI_LISTENER] >= table.connections_max:
            full = f"listeners.{ASGI_LISTENER} has its {table.connections_max} connections already"
            peer, _, _ = came.address.rpartition(":")
            if not engine.connections.make_room(ASGI_LISTENER, peer, full, engine.now()):
                engine.connections_refused += 1
                raise Closed(full)
        protocol = SUBPROTOCOLS[chosen.lower()]
        return Admitted(came.address, chosen, protocol, table.speaking(protocol))

    def _check_stranger(self, came: Came, host: str, *, everybody: bool) -> None:
        if everybody:
            return
        if not came.is_here:
            raise Refusal(403, f"nobody would have to log in: add [auth.users], or allow_anonymous = true in "
                               f"[listeners.{ASGI_LISTENER}] for what is no operator's")  # fmt: skip
        if not is_no_name(host):
            raise Refusal(403, f"{host[:100]!a} may be a name that a page has made up: use 127.0.0.1 or localhost, or "
                               "have users")  # fmt: skip


def _rules(table: ListenerTable, came: Came) -> Rules:
    origins = None if table.origins is None else tuple(table.origins)
    return Rules(table.paths, origins, SUBPROTOCOLS, ASGI_LISTENER, came.secure)
