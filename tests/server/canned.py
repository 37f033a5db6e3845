"""A broker with canned answers, and commands that are run against it."""

from __future__ import annotations

import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typer.testing import CliRunner

from headway.cli.app import app

NOW = time.time()
VERDICT: dict[str, Any] = {
    "number": 7, "time_s": 99.0, "wall_s": NOW - 50.5 * 86_400, "client": "display/7", "filter": "flights/#",
    "listener": "mqtt",
    "policy": "market data", "rule": 2, "kind": "fire", "action": {"kind": "disconnect", "which": None},
    "reason": "blocked", "cause": "over_subscription", "enforced": True, "window_s": 0.0, "held_s": 31.2,
    "readings": [
        {"meter": "blocked_time", "value": 31.2, "op": ">", "threshold": 30.0, "held": True},
        {"meter": "lag_bytes", "value": 5_000_000, "op": ">", "threshold": 64_000_000, "held": False},
    ],
    "sample": {"lag_records": 12_408},
    "text": "display/7 (flights/#): its socket has taken nothing for 31.2 s (limit 30 s); disconnected",
}  # fmt: skip
CONSUMER: dict[str, Any] = {
    "client": "display/7", "filter": "flights/#", "listener": "mqtt", "protocol": "mqtt 5", "connected": True,
    "state": "slow", "lag_records": 12_408, "lag_bytes": 1_600_000, "lag_age_ms": 31_200, "view_age_ms": 35_400,
    "drain_rate": 0.0, "offered_rate": 51_000.0, "blocked_ms": 31_200, "credit_exhausted_ms": 0, "ack_age_ms": 0,
    "in_flight": 20, "held_bytes": 1_500_000, "delivered_records": 5, "delivered_bytes": 640,
    "gap_records": {"discarded": 40, "expired": 2},
    "slow": True, "slow_count": 1, "policy": "market data", "producer_stall_ms": 1500, "last_verdict": VERDICT,
}  # fmt: skip
WELL = {**CONSUMER, "client": "healthy", "state": "ok", "lag_records": 0, "held_bytes": 0, "last_verdict": None}
BROKER: dict[str, Any] = {
    "version": "9.9.9", "uptime_s": 3725.0, "wall_s": NOW, "connections": 53, "sessions": 54, "subscriptions": 55,
    "published_records": 1000, "published_bytes": 128_000, "delivered_records": 50_000, "delivered_bytes": 6_400_000,
    "gap_records": {"discarded": 42}, "retained": 3, "loop_late_s": 0.0, "memory_rss_bytes": 61_000_000,
    "memory_peak_bytes": 62_000_000,
    "pools": [{"name": "global", "memory_bytes": 95, "memory_limit_bytes": 100, "memory_peak_bytes": 99,
               "disk_bytes": 0, "disk_limit_bytes": 0, "disk_peak_bytes": 0}],
}  # fmt: skip
PUBLISHER = {
    "client": "feed", "published_records": 1000, "published_bytes": 128_000, "paused": True,
    "waits_for": "memory is used up", "stalled_ms": 2500,
    "lost_records": {"discarded": 42},
}  # fmt: skip
QUEUE = {
    "name": "orders", "records": 7, "bytes": 900, "age_ms": 1200, "unacknowledged": 3, "consumers": 2,
    "slow_consumers": 1, "durable": True, "handed_records": 40, "dropped_records": {"expired": 5},
}  # fmt: skip
ANSWERS: dict[str, Any] = {
    "/v1/broker": BROKER,
    "/v1/consumers": {"consumers": [CONSUMER, WELL]},
    "/v1/publishers": {"publishers": [PUBLISHER]},
    "/v1/queues": {"queues": [QUEUE]},
    "/v1/why/display%2F7": {
        "client": "display/7", "connected": False, "readmitted_in_s": 12.0, "verdicts": [VERDICT, VERDICT],
    },
    "/v1/why/healthy": {"client": "healthy", "connected": True, "readmitted_in_s": 0, "verdicts": []},
}  # fmt: skip


class Canned(ThreadingHTTPServer):
    """An admin API that answers from a table; what is posted to it is kept. A str or bytes is sent as it is."""

    def __init__(self, answers: dict[str, Any]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = dict(answers)
        self.posted: list[tuple[str, str]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Canned

    def do_GET(self) -> None:
        answer = self.server.answers.get(self.path)
        if answer is None:
            self._send(404, {"error": "nothing is known of a client"})
        else:
            self._send(200, answer)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.posted.append((self.path, body))
        code, answer = self.server.answers["preview"]
        self._send(code, answer)

    def _send(self, code: int, answer: Any) -> None:
        raw = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None:
        """Tests speak for themselves."""


class Ran:
    def __init__(self, *arguments: str, stdin: str | None = None, width: int = 200, **environment: str) -> None:
        env = {"COLUMNS": str(width), "HEADWAY_ADMIN": "", **environment}
        result = CliRunner().invoke(app, list(arguments), input=stdin, env=env)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        self.code, self.out, self.err = result.exit_code, result.stdout, result.stderr
