"""Recordings, and what is asked of them over HTTP."""

from __future__ import annotations

import http.client
import io
import json
import urllib.parse
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from tests.interop.process import BrokerProcess
from tests.interop.waiting import PATIENCE_S

LISTENERS = '[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n[listeners.amqp]\nurl = "amqp://127.0.0.1:0"\n'
TOPICS = """
[[topic]]
filter = "flights/jfk/#"
key = "/tailnum"
keep = "7d"
[[topic]]
filter = "flights/#"
keep = "7d"
[[topic]]
filter = "plain"
key = "/tailnum"
keep = ["7d", "10GB"]
[[topic]]
filter = "big/#"
keep = "7d"
"""


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> str:
        return str(json.loads(self.body)["error"])

    @property
    def rows(self) -> list[dict[str, Any]]:
        assert self.status == 200, self.body
        if self.headers["Content-Type"] == "application/x-ndjson":
            return [json.loads(line) for line in self.body.splitlines()]
        return self.table.to_pylist()

    @property
    def table(self) -> pa.Table:
        assert self.headers["Content-Type"] == "application/vnd.apache.arrow.stream"
        with pa.ipc.open_stream(io.BytesIO(self.body)) as reader:
            return reader.read_all()

    def offset(self, name: str) -> int:
        return int(self.headers[f"Headway-{name}-Offset"])


def ask(broker: BrokerProcess, topic: str, method: str = "GET", **query: object) -> Answer:
    """``from_``: a word of Python's own."""
    words = urllib.parse.urlencode({name.rstrip("_"): value for name, value in query.items()})
    parts = urllib.parse.urlsplit(broker.admin)
    connection = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE_S)
    connection.request(method, f"/v1/topics/{urllib.parse.quote(topic, safe='')}/records?{words}")
    with connection.getresponse() as answer:
        return Answer(answer.status, dict(answer.headers), answer.read())


def recording(folder: Path, topics: str = TOPICS, **keys: str) -> str:
    table = {"path": str(folder), **keys}
    return LISTENERS + "[journal]\n" + "".join(f'{key} = "{value}"\n' for key, value in table.items()) + topics
