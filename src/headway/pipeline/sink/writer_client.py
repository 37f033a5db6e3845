"""The broker's admin API as a write uses it: parts, and batches of them (server/streams/writers.py)."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import NamedTuple

from headway.pipeline.broker.broker_client import BrokerClient
from headway.pipeline.broker.errors import SourceError

WAIT_MS = 5_000
"""The time after which the broker answers that it is not done yet."""


class BatchResult(NamedTuple):
    rows: int
    refused: str
    """The reason why a queue refused some of them; empty: none was refused."""


class WriterClient(BrokerClient):
    """A client that writes. Raises SourceError where the broker refuses, or is away for too long."""

    def stage(self, writer: str, batch: int, data: bytes) -> str:
        """Puts rows on the broker's disk as a part for this batch, and returns its name. One that is asked for twice,
        because the answer got lost, is removed by the broker when the batch is published."""
        answer = self.with_backoff(lambda: self.ask("POST", f"/v1/writers/{writer}/parts?batch={batch}", data))
        return str(self.object(answer.body)["part"])

    def take_back(self, writer: str, part: str) -> None:
        """Removes a part that no batch will have."""
        with suppress(SourceError):
            self.ask("DELETE", f"/v1/writers/{writer}/parts/{part}")

    def publish(self, writer: str, batch: int, parts: list[str]) -> BatchResult:
        """Returns when all of it is published, and on the broker's disk as far as it is kept; for as long as consumers
        hold publishers up, this one waits."""
        path = f"/v1/writers/{writer}/batches/{batch}"
        wish = json.dumps({"parts": parts, "wait_ms": min(WAIT_MS, int(self.timeout_s * 500))}).encode()
        while True:
            answer = self.with_backoff(lambda: self.ask("PUT", path, wish))
            said = self.object(answer.body)
            if said["done"]:
                return BatchResult(said["rows"], said["refused"])

    def forget(self, writer: str) -> None:
        """Says that the writer is done."""
        with suppress(SourceError):
            self.ask("DELETE", f"/v1/writers/{writer}")
