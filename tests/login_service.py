"""A service that is asked who may log in: an HTTP server of its own, whose answers a test chooses."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs


class Asked(NamedTuple):
    path: str
    headers: dict[str, str]
    fields: dict[str, str]


class LoginService:
    """``answer`` gets what was asked, and returns a status and a body."""

    def __init__(self, answer: Callable[[Asked], tuple[int, str]]) -> None:
        self.answer = answer
        self.asked: list[Asked] = []
        self.held = threading.Event()
        """Answers wait for this."""
        self.held.set()
        self.url = ""


@contextmanager
def login_service(answer: Callable[[Asked], tuple[int, str]]) -> Iterator[LoginService]:
    service = LoginService(answer)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers["Content-Type"] == "application/json":
                fields = json.loads(body)
            else:
                fields = {name: values[0] for name, values in parse_qs(body.decode()).items()}
            asked = Asked(self.path, dict(self.headers), fields)
            service.asked.append(asked)
            service.held.wait(30)
            status, said = service.answer(asked)
            self.send_response(status)
            if status == 302:
                self.send_header("Location", said)
            self.send_header("Content-Length", str(len(said.encode())))
            self.end_headers()
            self.wfile.write(said.encode())

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        service.url = f"http://127.0.0.1:{server.server_address[1]}/login"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield service
        finally:
            service.held.set()
            server.shutdown()
            thread.join()
