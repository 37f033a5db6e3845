"""A client that publishes batches over HTTP, each exactly once, as Spark does: it asks again until it is told that a
batch is on disk, also in the broker's next life."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from tests.crash.actor import Actor, World, body_of
from tests.crash.event import Confirmed, Sent
from tests.interop.test_interop_writers import plain

ROWS_MAX = 20
TIMEOUT_S = 10.0


class Writer(Actor):
    """Has no connection of its own: each request is by itself."""

    def __init__(self, world: World, name: str, topic: str, box: str) -> None:
        super().__init__(world, name)
        self.topic = topic
        self.box = box
        self.batch = 0
        self.part = ""
        self.unconfirmed: list[str] = []
        """The records of the batch that is under way."""

    def step(self) -> None:
        if self.away:
            self.away -= 1
        elif not self.world.setting.speechless and self.world.chance(0.2):
            self.work()

    def work(self) -> None:
        if not self.unconfirmed:
            self._stage()
        if not self.unconfirmed:
            return
        status, answer = self._call("PUT", f"batches/{self.batch}", json.dumps({"parts": [self.part]}).encode())
        if status == 200:
            for record in self.unconfirmed:
                self.world.tell(Confirmed(record))
            self.unconfirmed = []
        elif status not in (202, 503):
            self.wrong(f"batch {self.batch} was answered with {status} {answer}")

    def _stage(self) -> None:
        records = [self.new_record() for _ in range(self.world.rng.randint(1, ROWS_MAX))]
        status, answer = self._call("POST", "parts", plain(self.topic, [body_of(record) for record in records]))
        if status == 503:
            self.away = 10
            return
        assert status == 201, f"{self.name}: a part was answered with {status} {answer}"
        self.world.conns += 1
        self.conn = self.world.conns
        self.part, self.batch, self.unconfirmed = answer["part"], self.batch + 1, records
        for record in records:
            self.world.tell(Sent(record, (self.box,), self.conn))

    def _call(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(urlsplit(self.world.life.admin).netloc, timeout=TIMEOUT_S)
        try:
            connection.request(method, f"/v1/writers/{self.name}/{path}", body)
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else {}
        finally:
            connection.close()

    def connect(self) -> Any:
        raise NotImplementedError

    begin = connect

    def handle(self, item: Any) -> None:
        raise NotImplementedError
