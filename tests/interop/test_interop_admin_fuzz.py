"""Odd requests to every path of the admin API: each is answered in words, and none leaves a stack trace in the log."""

from __future__ import annotations

import random
import socket
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.process import BrokerProcess
from tests.interop.records import recording
from tests.sim.seeds import seeds_of_the_day

TOPICS = '[[topic]]\nfilter = "t/#"\nkey = "/id"\nkeep = "7d"\n'
DIGITS = "9" * 5000
PATHS = (
    "/",
    "/console/index.html",
    "/healthz",
    "/readyz",
    "/metrics",
    "/metrics/consumers",
    "/metrics/queues",
    "/v1/broker",
    "/v1/consumers",
    "/v1/publishers",
    "/v1/queues",
    "/v1/verdicts",
    "/v1/why/{}",
    "/v1/trials",
    "/v1/preview",
    "/v1/clients/{}",
    "/v1/journal/backup",
    "/javascript/{}",
    "/v1/topics",
    "/v1/topics/{}/records",
    "/v1/writers/{}",
    "/v1/writers/{}/parts",
    "/v1/writers/{}/parts/{}",
    "/v1/writers/{}/batches/{}",
    "/v1/cursors/{}",
    "/v1/cursors/{}/leave",
    "/v1/state/{}",
    "/v1/console/consumers/{}",
    "/v1/console/consumers",
    "/v1/moves",
    "/v1/console/hour",
    "/v1/console/me",
    "/v1/console/states",
    "/v1/console/policies",
    "/v1/console/replay",
    "/v1/reports",
    "/v1/reports/{}",
    "/v1/{}",
)
NAMES = (
    "x",
    "t/a",
    "t/#",
    "#",
    "+",
    "",
    "..",
    "../../etc/passwd",
    "\0",
    "\udcff",
    "ä" * 300,
    DIGITS,
    "1",
    "-1",
    "%",
    "$SYS/x",
)
PARAMETERS = (
    "from",
    "to",
    "max_bytes",
    "format",
    "top",
    "skip",
    "limit",
    "order_by",
    "selector",
    "select",
    "group_by",
    "client",
    "filter",
    "since",
    "until",
    "name",
    "from_s",
    "key",
    "offset",
    "wait_ms",
    "cause",
    "reason",
    "rule",
    "action",
    "policy",
    "follow",
    "patience",
    "sort",
    "page",
    "state",
    "queue",
    "after",
    "before",
    "count",
    "at",
    "window",
)
VALUES = (
    "",
    "0",
    "1",
    "-1",
    DIGITS,
    "-" + DIGITS,
    "1e999",
    "NaN",
    "Infinity",
    "-Infinity",
    "1.5",
    "1e5",
    "\0",
    "ä",
    "x" * 3000,
    "2026-01-31",
    "9999-12-31T23:59:59Z",
    "0001-01-01",
    "-" + DIGITS + "d",
    DIGITS + "GB",
    "-99999999999d",
    "[",
    "/*" * 50,
    "a = " + DIGITS,
    "a > 1e999",
    "a = 'x",
    "offset,",
    "²",
    "٣",
    "1_000",
    "arrow",
    "json",
    "earliest",
    "end",
)
BODIES = (
    b"",
    b"{}",
    b"[]",
    b"null",
    b'"x"',
    b"{",
    b"\xff\xfe",
    b"\0",
    DIGITS.encode(),
    b"[" * 3000,
    b'{"a":' * 3000,
    f"a = {DIGITS}".encode(),
    f'{{"offset": {DIGITS}, "topic": "t/#"}}'.encode(),
    b'{"offset": NaN, "topic": "t/#"}',
    f'{{"offset": -{DIGITS}}}'.encode(),
    b'{"offset": 1e999, "topic": "t/#"}',
    b'{"topic": "t/#", "offset": 1, "wait_ms": 9e99}',
    b'{"topic": "t/#", "offset": 1, "patience": "99999999999999d"}',
    b'{"parts": [], "wait_ms": -1}',
    b'{"parts": ["\\u0000"], "wait_ms": 99999999999999999999}',
    b'{"parts": ["x"]}',
    b'{"parts": 1}',
    b'{"move": "disconnect", "client": "x"}',
    b'{"move": "skip", "client": 1}',
    b'{"action": "\\ud800"}',
    f"[[policy]]\nname='x'\ntopics=['#']\n[[policy.rule]]\nwhen={{lag_records='> {DIGITS}'}}\nthen='notify'".encode(),
    f"[[policy]]\nname = 'x'\nwhen = {DIGITS}".encode(),
    b"a = 1e999999",
    b"a = inf\nb = nan",
    b"a = 9999-99-99",
    b"[a" + b".a" * 5000 + b"]",
    b"ARROW1\0\0" + b"\xff" * 200,
    b"\xff\xff\xff\xff\x10\0\0\0" + b"\0" * 16,
)
HEADERS = (
    f"Content-Length: {DIGITS}",
    "Content-Length: -1",
    "Content-Length: x",
    "Transfer-Encoding: chunked",
    "Expect: 100-continue",
    "Content-Encoding: gzip",
    "Content-Encoding: deflate",
    "Content-Type: text/plain; charset=idna",
    "Range: bytes=0-" + DIGITS,
    "Last-Event-ID: " + DIGITS,
    "Accept: text/event-stream",
    "If-None-Match: *",
    "Authorization: Basic !!!",
    "Authorization: Bearer \xff",
    "Content-Type: multipart/form-data",
    "Host: [",
    "Origin: x",
    "Accept-Encoding: gzip;q=" + DIGITS,
    "Content-Type: application/vnd.apache.arrow.stream",
    "Keep-Alive: " + DIGITS,
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder: Path = tmp_path_factory.mktemp("broker")
    process = BrokerProcess(folder, recording(folder / "journal", TOPICS))
    yield process
    process.stop()  # looks for tracebacks, too


def odd_request(rng: random.Random) -> tuple[bytes, bool]:
    """A request, and whether its client leaves before all of the body is there."""
    path = rng.choice(PATHS)
    while "{}" in path:
        path = path.replace(
            "{}", urllib.parse.quote(rng.choice(NAMES), safe=rng.choice(("", "/")), errors="surrogateescape"), 1
        )
    if rng.random() < 0.6:
        pairs = [(rng.choice(PARAMETERS), rng.choice(VALUES)) for _ in range(rng.randrange(1, 4))]
        path += "?" + urllib.parse.urlencode(pairs)
    method = rng.choice(("GET", "GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS"))
    body, leaves = rng.choice(BODIES), rng.random() < 0.3
    length = len(body) + (rng.choice((1, 1000)) if leaves else 0)
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close"]
    if rng.random() < 0.3:
        lines.append(rng.choice(HEADERS))
    if not any(line.startswith(("Content-Length", "Transfer")) for line in lines):
        lines.append(f"Content-Length: {length}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body, leaves


def ask(broker: BrokerProcess, request: bytes, leaves: bool) -> bytes:
    """The first bytes of the answer; none if the client leaves."""
    address = urllib.parse.urlsplit(broker.admin)
    with socket.create_connection((address.hostname, address.port), 10) as sock:
        sock.settimeout(0.3 if leaves else 15)
        sock.sendall(request)
        if leaves:
            return b""
        try:
            return sock.recv(4096)
        except (TimeoutError, ConnectionResetError):
            return b""


@pytest.mark.parametrize("seed", seeds_of_the_day(range(3)))
def test_odd_requests_leave_no_stack_trace(broker: BrokerProcess, seed: int) -> None:
    rng = random.Random(seed)
    for number in range(300):
        request, leaves = odd_request(rng)
        answer = ask(broker, request, leaves)
        assert not answer.startswith(b"HTTP/1.1 500"), (seed, number, request[:300], answer[-300:])
        log = broker.log.read_text()
        assert "Traceback" not in log, (seed, number, leaves, request[:300], log[-3000:])
    assert broker.get("/v1/broker")
