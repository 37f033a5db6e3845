"""What stands between Spark and a broker: it notes what is asked, and breaks off an answer where a test wants it to."""

from __future__ import annotations

import http.client
import urllib.parse
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import NamedTuple

from tests.interop.waiting import PATIENCE_S


class Asked(NamedTuple):
    method: str
    topic: str
    """Or the cursor's name."""
    query: dict[str, str]


class Proxy:
    """``target``: the broker's admin URL; may change. ``cut_at``: so many bytes of records are let through, all in all,
    then ``when_cut`` is called and the connection goes, once. ``when_asked``: called before the first records are."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.asked: list[Asked] = []
        self.cut_at: int | None = None
        self.when_cut: Callable[[], None] = lambda: None
        self.when_asked: Callable[[], None] | None = None
        self.lost: tuple[str, str] | None = None
        """Of this method, and paths that begin so: the broker does what it is asked, and its answer is lost."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # somebody hung up
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def spans(self) -> list[tuple[int, int]]:
        """From where to where records were asked for, in order."""
        gets = (one.query for one in self.asked if one.method == "GET")
        return sorted((int(query["from"]), int(query["to"])) for query in gets)

    def topics(self) -> set[str]:
        return {one.topic for one in self.asked if one.method == "GET"}

    def _handler(proxy) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _pass(self) -> None:
                parts = urllib.parse.urlsplit(self.path)
                topic = urllib.parse.unquote(parts.path.split("/")[3])
                proxy.asked.append(Asked(self.command, topic, dict(urllib.parse.parse_qsl(parts.query))))
                if self.command == "GET" and (call := proxy.when_asked):
                    proxy.when_asked = None
                    call()
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                there = urllib.parse.urlsplit(proxy.target).netloc
                try:
                    upstream = http.client.HTTPConnection(there, timeout=PATIENCE_S)
                    upstream.request(self.command, self.path, body)
                    answer = upstream.getresponse()
                    if proxy.lost and self.command == proxy.lost[0] and self.path.startswith(proxy.lost[1]):
                        raise ConnectionError
                    self._answer(answer)
                    upstream.close()
                except (OSError, http.client.HTTPException):
                    self.close_connection = True

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass

            def _answer(self, answer: http.client.HTTPResponse) -> None:
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                if not answer.chunked or self.command == "HEAD":
                    self.wfile.write(answer.read())
                    return
                while chunk := answer.read1(65_536):
                    if proxy.cut_at is not None:
                        if len(chunk) >= proxy.cut_at:
                            self._send(chunk[: proxy.cut_at])
                            proxy.cut_at = None
                            proxy.when_cut()
                            raise ConnectionError
                        proxy.cut_at -= len(chunk)
                    self._send(chunk)
                self.wfile.write(b"0\r\n\r\n")

            def _send(self, chunk: bytes) -> None:
                if chunk:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))

            def log_message(self, *_: object) -> None:
                pass

        return Handler
