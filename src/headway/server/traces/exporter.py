"""The exporter: OpenTelemetry's own, over OTLP/HTTP, for the thread. It tells why an export failed, in a few words.

That library logs each try. Here these lines are left out; the broker logs one of its own (traces.py).
"""

from __future__ import annotations

import logging
import threading
from typing import Any

import requests
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
        self._session = _Session()
        self._exporter = OTLPSpanExporter(
            table.url, headers=table.headers, timeout=table.timeout_s, session=self._session
        )
        self._hush = _Hush()
        logging.getLogger(_ITS_LOG).addFilter(self._hush)

    def export(self, some: list[Ended]) -> tuple[int, str]:
        """Sends the spans of some traces. Returns how many spans, and an empty text; or why they could not be sent."""
        self._hush.thread = threading.get_ident()
        self._session.why = ""
        try:
            spans: list[ReadableSpan] = [span for one in some for span in spans_of(one, self._resource)]
            if self._exporter.export(spans) is SpanExportResult.SUCCESS:
                return len(spans), ""
            return 0, (self._session.why or "they could not be written")[:WHY_CHARS_MAX]
        except Exception as error:  # noqa: BLE001 - whatever ails the library, the broker goes on
            return 0, (str(error) or type(error).__name__)[:WHY_CHARS_MAX]

    def give_up(self) -> None:
        """Ends a wait for the next try, from another thread."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def close(self) -> None:
        logging.getLogger(_ITS_LOG).removeFilter(self._hush)


class _Session(requests.Session):
    """A session that keeps why its last request failed."""

    def __init__(self) -> None:
        super().__init__()
        self.why = ""

    def request(self, *args: Any, **more: Any) -> requests.Response:
        try:
            answer = super().request(*args, **more)
        except requests.RequestException as error:
            self.why = _in_plain_words(error)
            raise
        self.why = f"HTTP {answer.status_code} {answer.reason}"
        return answer


def _in_plain_words(error: requests.RequestException) -> str:
    """Returns what the system said, which lies below what several libraries made of it."""
    if isinstance(error, requests.Timeout):
        return "it does not answer in time"
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, OSError) and below.strerror:
            return below.strerror
        reason = getattr(below, "reason", None) or next(iter(below.args), None)
        below = below.__cause__ or (reason if isinstance(reason, BaseException) else None)
    return str(error)


class _Hush(logging.Filter):
    """Lets nothing through that the library logs in the exporting thread."""

    def __init__(self) -> None:
        super().__init__()
        self.thread = 0

    def filter(self, record: logging.LogRecord) -> bool:
        return record.thread != self.thread
