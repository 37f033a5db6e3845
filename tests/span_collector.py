"""An OpenTelemetry collector: an HTTP server that takes spans as the real one does, in protobuf, and keeps them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Told:
    """One span, with its attributes as a dictionary."""

    def __init__(self, span: Span, resource: dict[str, Any]) -> None:
        self.name = span.name
        self.trace_id, self.span_id, self.parent = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
        self.kind = Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower()
        self.state = span.trace_state
        self.began_ns, self.ended_ns = span.start_time_unix_nano, span.end_time_unix_nano
        self.failed = span.status.code == 2
        self.said = span.status.message
        self.about = _plain(span.attributes)
        self.events = {event.name: _plain(event.attributes) for event in span.events}
        self.resource = resource

    @property
    def outcome(self) -> str:
        return str(self.about.get("headway.outcome", ""))

    @property
    def consumer(self) -> str:
        return str(self.about.get("messaging.client.id") or self.about.get("headway.queue"))


def _plain(attributes: Any) -> dict[str, Any]:
    return {one.key: _value(one) for one in attributes}


def _value(one: KeyValue) -> Any:
    return getattr(one.value, str(one.value.WhichOneof("value")))


class SpanCollector:
    """``held`` makes requests wait while it is clear; ``status`` is the answer."""

    def __init__(self) -> None:
        self.spans: list[Told] = []
        self.requests: list[tuple[str, dict[str, str]]] = []
        """Paths and headers."""
        self.held = threading.Event()
        self.held.set()
        self.status = 200
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        self.requests.append((path, headers))
        self.held.wait(60)
        if self.status == 200:
            request = ExportTraceServiceRequest.FromString(body)
            self.spans += [
                Told(span, _plain(group.resource.attributes))
                for group in request.resource_spans for scope in group.scope_spans for span in scope.spans
            ]  # fmt: skip
        return self.status

    def of(self, trace_id: int) -> tuple[Told, dict[str, Told]] | None:
        """The broker's span of a trace, and those below it by consumer; None if there is none yet."""
        found = [span for span in self.spans if span.trace_id == f"{trace_id:032x}"]
        top = [span for span in found if span.kind == "server"]
        if not top:
            return None
        assert len(top) == 1
        below = [span for span in found if span is not top[0]]
        assert {span.parent for span in below} <= {top[0].span_id}
        return top[0], {span.consumer: span for span in below}


@contextmanager
def span_collector(port: int = 0) -> Iterator[SpanCollector]:
    collector = SpanCollector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = collector.take(self.path, dict(self.headers), body)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        allow_reuse_address = True

    with Server(("127.0.0.1", port), Handler) as server:
        collector.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield collector
        finally:
            collector.held.set()
            server.shutdown()
            thread.join()
