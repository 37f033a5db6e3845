"""Permissions over HTTP come before options: who may not do something learns nothing by asking wrongly for it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.server.served import serve
from tests.server.test_http_greedy import say

from headway.core.message.record import Run
from headway.server.admin.api import Admin

CONFIG = """
[[topic]]
filter = "secret/#"
key = "/id"
keep = "7d"
[[topic]]
filter = "open/a"
keep = "7d"
[[permission]]
subscribe = ["open/#"]
declare = ["$cursor/mine"]
[journal]
"""


async def asked(served: Admin, method: str, path: str, body: str = "", accept: str = "*/*") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept: {accept}\r\n"
    reader, writer = await say(served, f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
    answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize(("method", "path", "body", "accept"), [
    ("GET", "/v1/state/secret/%23?format=nonsense", "", "*/*"), ("GET", "/v1/state/secret/%23?nonsense=1", "", "*/*"),
    ("GET", "/v1/state/secret/%23?nonsense=1", "", "text/event-stream"),
    ("GET", "/v1/state/secret/%23?where=)", "", "text/event-stream"),
    ("GET", "/v1/topics/secret/%23/records?nonsense=1", "", "*/*"), ("PUT", "/v1/cursors/theirs", "nonsense", "*/*"),
    ("PUT", "/v1/cursors/mine", '{"topic": "secret/x", "offset": -7, "patience": "nonsense"}', "*/*"),
    ("PUT", "/v1/cursors/mine", '{"topic": "unknown", "offset": 1}', "*/*"),
    ("POST", "/v1/writers/theirs/parts", "nonsense", "*/*"), ("PUT", "/v1/writers/theirs/batches/1", "[", "*/*"),
    ("POST", "/v1/preview", "nonsense", "*/*"), ("POST", "/v1/console/replay", "nonsense", "*/*"),
    ("POST", "/v1/moves", "nonsense", "*/*"), ("DELETE", "/v1/clients/unknown", "", "*/*"),
    ("GET", "/v1/why/unknown", "", "*/*"), ("GET", "/v1/verdicts?nonsense=1", "", "*/*"),
    ("GET", "/v1/trials?after=nonsense", "", "*/*"), ("GET", "/v1/console/consumers/nonsense", "", "*/*"),
])  # fmt: skip
def test_rights_are_asked_before_options_are_read(
    tmp_path: Path, method: str, path: str, body: str, accept: str
) -> None:
    async def play(served: Admin) -> None:
        answer = await asked(served, method, path, body, accept)
        assert answer.startswith(b"HTTP/1.1 403 "), answer

    serve(tmp_path, play, CONFIG + f'path = "{tmp_path}/journal"')


@pytest.mark.parametrize(("method", "path", "body"), [
    ("GET", "/v1/topics/open/x/records", ""), ("GET", "/v1/topics", ""),
    ("PUT", "/v1/cursors/mine", '{"topic": "open/x", "offset": 1}'), ("GET", "/v1/state/open/x", ""),
])  # fmt: skip
def test_topics_that_one_may_not_read_are_not_named(tmp_path: Path, method: str, path: str, body: str) -> None:
    async def play(served: Admin) -> None:
        answer = await asked(served, method, path, body)
        assert answer.startswith((b"HTTP/1.1 404 ", b"HTTP/1.1 200 ")), answer
        assert b"secret" not in answer

    serve(tmp_path, play, CONFIG + f'path = "{tmp_path}/journal"')


@pytest.mark.parametrize("rights", ['subscribe = ["secret/a"]', 'subscribe = ["secret/a"]\nadmin = ["read"]',
                                    'subscribe = ["secret/#"]'])  # fmt: skip
@pytest.mark.parametrize("format", ["json", "jsonl"])
def test_how_many_keys_a_state_has_is_told_to_who_may_read_all_of_it(tmp_path: Path, rights: str, format: str) -> None:
    config = f'[[topic]]\nfilter = "secret/#"\nkey = "/id"\n[[permission]]\n{rights}\n'

    async def play(served: Admin) -> None:
        broker, answers = served._engine.broker, list[bytes]()
        for others in (3, 7):
            for number in range(others):
                payload = b'{"id": %d}' % number
                run = Run(f"secret/{'a' if number < 2 else 'b'}", payload, [len(payload)], [0])
                broker.publish(None, [run], served._engine.now())
            answers.append(await asked(served, "GET", f"/v1/state/secret/a?format={format}"))
        told = b"7" in re.findall(rb"(?i)keys\W+(\d+)", answers[1])
        assert told == (rights != 'subscribe = ["secret/a"]'), answers[1]
        assert (b"looked_at" in answers[1]) == (format == "json" and told)
        assert b"200 OK" in answers[1]

    serve(tmp_path, play, config)
