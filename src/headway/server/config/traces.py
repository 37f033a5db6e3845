"""``[traces]``: where spans of sampled records go, and how many records are followed."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field

from headway.core.receipts import TraceSampling
from headway.server.config.fields import CollectorUrl, HeaderName, HeaderValue, Name, Share, Table, count, duration


class TracesTable(Table):
    """``[traces]``"""

    enabled: bool = True
    endpoint: CollectorUrl = "http://127.0.0.1:4318"
    """The address of an OTLP/HTTP collector."""
    headers: dict[HeaderName, HeaderValue] = Field(default_factory=dict)
    """Sent with each request, such as a token."""
    service: Name | None = None
    """The name of the service in spans; None: that of the broker."""
    ratio: Share = 1.0
    """The share of sampled traces that is followed."""
    per_second: Annotated[int, count(1, 1_000)] = 100
    """Records a second that are followed, at most."""
    wait_s: Annotated[float, duration(1.0, 3600.0)] = Field(default=30.0, alias="wait")
    """Time for which a record is followed."""
    timeout_s: Annotated[float, duration(0.1, 60.0)] = Field(default=10.0, alias="timeout")
    """Time that the collector has for a request, with all tries."""
    waiting_max: Annotated[int, count(1, 100_000)] = 1_000
    """Traces that wait for the collector."""

    @property
    def url(self) -> str:
        """The whole address: without a path, that of the protocol is meant."""
        parts = urlsplit(self.endpoint)
        return parts._replace(path="/v1/traces").geturl() if parts.path in ("", "/") else self.endpoint

    def sampling(self) -> TraceSampling:
        return TraceSampling(self.ratio, self.per_second, self.wait_s)
