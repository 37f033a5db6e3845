"""The board: a page with the ten longest delays, live, for whoever opens it in a browser.

The page has a view of its own (``headway-view.js``, which the broker gives to pages) over MQTT in a WebSocket. All that
comes from here is the page itself, and the addresses. The page tells what it shows, for the demo's summary.
"""

from __future__ import annotations

import http.server
import threading
from pathlib import Path
from typing import Any

import msgspec

PAGE = Path(__file__).with_name("board.html")
LATE = "dep_delay > 60"
"""The selector of all who show delays: more than an hour."""
FILTER, KEY = "flights/#", "/tailnum"
TOP = 10
SHOWN_BYTES_MAX = 4096


class Shown(msgspec.Struct):
    """The account of a page."""

    current: bool
    aircraft: int
    draws: int
    top: list[int]
    """Offsets of the flights in its table."""


class BoardServer:
    """A web server on loopback, in threads of its own."""

    def __init__(self, admin: str, web: str) -> None:
        """``admin``, ``web``: the addresses of the broker's admin API and of its listener for WebSockets."""
        self.shown: Shown | None = None
        self._settings = msgspec.json.encode({
            "module": f"{admin}/javascript/headway-view.js", "url": web, "filter": FILTER, "top": TOP,
            "options": {"key": KEY, "selector": LATE, "staleAfter": "2s"},
        })  # fmt: skip
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _take(self, body: bytes) -> bool:
        try:
            self.shown = msgspec.json.decode(body, type=Shown)
        except msgspec.DecodeError:
            return False
        return True

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        board = self
        pages = {
            "/": ("text/html; charset=utf-8", PAGE.read_bytes()), "/settings": ("application/json", self._settings)
        }

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                kind, body = pages.get(self.path, ("text/plain", b""))
                self._answer(200 if body else 404, kind, body)

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                sound = self.path == "/shown" and length <= SHOWN_BYTES_MAX and board._take(self.rfile.read(length))
                self._answer(204 if sound else 400)

            def _answer(self, status: int, kind: str = "text/plain", body: bytes = b"") -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Says nothing: the screen is the demo's."""

        return Handler
