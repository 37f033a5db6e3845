"""The exporter: OpenTelemetry's own, over OTLP/HTTP, for the thread. It tells why an export failed, in one line.

That library logs each retry. Here they are kept, for the line that the broker logs itself.
"""

from __future__ import annotations

import logging
import threading

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from headway import __version__
from headway.server.config import TracesTable
from headway.server.traces.ended import Ended
from headway.server.traces.spans import spans_of

_ITS_LOG = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
WHY_CHARS_MAX = 200


class Exporter:
    def __init__(self, table: TracesTable, service: str, instance: str) -> None:
        self._resource = Resource.create(
            {"service.name": service, "service.version": __version__, "service.instance.id": instance}
        )
        self._exporter = OTLPSpanExporter(table.url, headers=table.headers, timeout=table.timeout_s)
        self._said = _Said()
        logging.getLogger(_ITS_LOG).addFilter(self._said)

    def export(self, some: list[Ended]) -> tuple[int, str]:
        """Sends the spans of some traces. Returns how many spans, and an empty text; or why they could not be sent."""
        self._said.begin()
        try:
            spans: list[ReadableSpan] = [span for one in some for span in spans_of(one, self._resource)]
            if self._exporter.export(spans) is SpanExportResult.SUCCESS:
                return len(spans), ""
            return 0, self._said.text
        except Exception as error:  # noqa: BLE001 - whatever ails the library, the broker goes on
            return 0, (str(error) or type(error).__name__)[:WHY_CHARS_MAX]

    def give_up(self) -> None:
        """Ends a wait for the next try, from another thread."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def close(self) -> None:
        logging.getLogger(_ITS_LOG).removeFilter(self._said)


class _Said(logging.Filter):
    """Keeps the first line that the library logs in the exporting thread, and lets none of these through."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = 0
        self.text = ""

    def begin(self) -> None:
        self._thread, self.text = threading.get_ident(), "unknown"

    def filter(self, record: logging.LogRecord) -> bool:
        if threading.get_ident() != self._thread:
            return True
        if self.text == "unknown":
            self.text = record.getMessage()[:WHY_CHARS_MAX]
        return False
