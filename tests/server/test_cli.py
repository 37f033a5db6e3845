"""The command line: against canned answers from a real HTTP server, and as a process of its own."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from headway import __version__
from headway.cli.admin import AdminClient, NoBroker
from headway.cli.app import app
from headway.cli.top import watch
from headway.console import printable
from headway.server.config.auth import digest_of, verify_password
from headway.server.config.reading import default_text, parse_settings

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
    "state": "slow", "lag_records": 12_408, "lag_bytes": 1_600_000, "lag_age_ms": 31_200, "drain_rate": 0.0,
    "offered_rate": 51_000.0, "blocked_ms": 31_200, "credit_exhausted_ms": 0, "ack_age_ms": 0, "in_flight": 20,
    "held_bytes": 1_500_000, "delivered_records": 5, "delivered_bytes": 640,
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


@pytest.fixture
def broker() -> Iterator[Canned]:
    server = Canned(ANSWERS)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class Ran:
    def __init__(self, *arguments: str, stdin: str | None = None, width: int = 200, **environment: str) -> None:
        env = {"COLUMNS": str(width), "HEADWAY_ADMIN": "", **environment}
        result = CliRunner().invoke(app, list(arguments), input=stdin, env=env)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        self.code, self.out, self.err = result.exit_code, result.stdout, result.stderr


@pytest.fixture
def closed() -> str:
    """A URL where nobody listens."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.server_close()
    return f"http://127.0.0.1:{server.server_port}"


# -- help --------------------------------------------------------------------------------------------------------------


def test_version() -> None:
    ran = Ran("--version")
    assert (ran.code, ran.out) == (0, f"headway {__version__}\n")


@pytest.mark.parametrize("command", ["", "serve", "check", "top", "why", "passwd"])
def test_help_teaches_by_examples(command: str) -> None:
    ran = Ran(*command.split(), "--help")
    assert ran.code == 0
    assert len(re.findall(rf"^ +(.*\| )?headway {command}", ran.out, re.MULTILINE)) >= 2


# -- mistakes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [("top",), ("top", "--once"), ("top", "--json"), ("why", "x")])
def test_no_broker_is_one_line_that_says_what_to_do(closed: str, arguments: tuple[str, ...]) -> None:
    ran = Ran(*arguments, "--admin", closed)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        f"headway: no broker is running at {closed}; start one: headway serve (or name its address: --admin URL)\n"
    )
    assert Ran(*arguments, HEADWAY_ADMIN=closed).err == ran.err


@pytest.mark.parametrize("answer", [b"<html>", b"[]", b"", b"\xff\xfe", b"[" * 100_000, b"{}"])
def test_something_else_may_answer(broker: Canned, answer: bytes) -> None:
    broker.answers["/v1/consumers"] = answer
    ran = Ran("top", "--once", "--admin", broker.url)
    assert ran.code == 2
    assert re.fullmatch(r"headway: what answers at \S+ is not headway's admin API .*\n", ran.err)


def test_a_broker_that_is_stuck_is_not_waited_for_forever() -> None:
    # It listens, and never accepts.
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as silent,
        pytest.raises(NoBroker, match=r"did not answer within 0\.05 s"),
    ):
        AdminClient(f"http://127.0.0.1:{silent.server_port}", timeout_s=0.05).broker()


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://x", "http://", "a b", "http://x:99999", "http://x/?q", ""]
)
def test_bad_addresses(url: str) -> None:
    ran = Ran("top", "--admin", url, HEADWAY_ADMIN="nonsense://x" if not url else "")
    assert ran.code == 2
    assert "is not the address of an admin API, such as http://127.0.0.1:9883" in ran.err
    assert ran.err.count("\n") == 1


def test_an_address_needs_no_scheme(broker: Canned) -> None:
    assert Ran("top", "--once", "--admin", broker.url.removeprefix("http://")).code == 0


def test_config_mistakes_are_one_line_each(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text("[pool]\nmemry = 1\n[servr]\n")
    for arguments in (
        ("check", str(file)),
        ("serve", "--config", str(file)),
        ("serve", "-c", str(file), "--print-config"),
    ):
        ran = Ran(*arguments)
        assert (ran.code, ran.out) == (2, "")
        assert sorted(ran.err.splitlines()) == [
            f"headway: {file}: pool.memry: unknown key (did you mean memory?)",
            f"headway: {file}: servr: unknown section (did you mean server?)",
        ]
    missing = Ran("check", str(tmp_path / "none.toml"))
    assert (missing.code, missing.err) == (
        2, f"headway: {tmp_path / 'none.toml'}: cannot be read: no such file or directory\n",
    )  # fmt: skip


def test_other_peoples_names_cannot_write_to_the_terminal() -> None:
    assert printable("a\x1b[31mb\nc\u202ed") == "a\ufffd[31mb\ufffdc\ufffdd"


# -- check -------------------------------------------------------------------------------------------------------------


def test_check(tmp_path: Path, broker: Canned) -> None:
    file = tmp_path / "good.toml"
    text = '[pool]\nmemory = "20MB"\ndisk = 0\n'
    file.write_text(text)
    ran = Ran("check", str(file))
    assert (ran.code, ran.err) == (0, "")
    assert "20 MB of memory" in ran.out
    assert "note: the pool has no disk" in ran.out
    assert ran.out.endswith(f"{file} is in order.\n")

    hit = {"client": "display/7", "filter": "flights/#", "policy": "p", "rule": 1, "text": "is behind by 9 s\x1b[2J"}
    broker.answers["preview"] = 200, {"hits": [hit, {**hit, "rule": 2}], "total": 1002, "clients": 7, "consumers": 53}
    ran = Ran("check", str(file), "--against", broker.url)
    assert broker.posted == [("/v1/preview", text)]
    assert ran.code == 0
    assert "It would hit 7 clients, of the 53 consumers there are now:\n" in ran.out
    assert "display/7  flights/#  policy 'p', rule 2: is behind by 9 s\ufffd[2J\n" in ran.out
    assert ran.out.endswith("  ... and 1000 more\n")

    broker.answers["preview"] = 200, {"hits": [], "consumers": 53}
    assert "It would hit none of the 53 consumers" in Ran("check", str(file), "--against", broker.url).out

    broker.answers["preview"] = 400, {"error": "pool.memory: too much\nflap.base: too long"}
    ran = Ran("check", str(file), "--against", broker.url)
    assert (ran.code, ran.err) == (2, "headway: pool.memory: too much\nheadway: flap.base: too long\n")


# -- top ---------------------------------------------------------------------------------------------------------------


def test_top_once(broker: Canned) -> None:
    ran = Ran("top", "--once", "--admin", broker.url)
    assert (ran.code, ran.err) == (0, "")
    assert "headway 9.9.9" in ran.out
    assert "up 1 h 2 min" in ran.out
    assert "in 1,000 (128 kB)" in ran.out
    assert "pool global: memory ████████ 95 B of 100 B, peak 99 B" in ran.out
    (slow,) = [line for line in ran.out.splitlines() if line.startswith("display/7")]
    columns = re.split(r"\s{2,}", slow)
    assert columns[:7] == ["display/7", "flights/#", "slow", "12,408", "31.2 s", "1.5 MB", "·"]
    assert columns[7:13] == ["51 kB/s", "31.2 s", "·", "20", "42", "1.5 s"]
    assert columns[13].strip() == "50 d 12 h ago: disconnect, blocked (over-subscription)"
    assert ran.out.index("display/7") < ran.out.index("healthy")
    (feed,) = [line for line in ran.out.splitlines() if line.startswith("feed")]
    waits = "not read now: memory is used up"
    assert re.split(r"\s{2,}", feed.strip()) == ["feed", "1,000", "128 kB", "2.5 s", "42", waits]


def test_top_on_a_narrow_terminal_keeps_what_matters(broker: Canned) -> None:
    lines = Ran("top", "--once", "--admin", broker.url, width=80).out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    (slow,) = [line for line in lines if line.startswith("display/7")]
    assert "12,408" in slow
    assert "slow" in slow
    assert "BLOCKED" not in "\n".join(lines)


def test_top_names_the_worst_and_counts_the_rest(broker: Canned) -> None:
    broker.answers["/v1/consumers"] = {"consumers": [CONSUMER, *({**WELL, "client": f"c{n}"} for n in range(199))]}
    out = Ran("top", "--once", "--admin", broker.url).out
    assert "and 150 more with less lag" in out
    assert "display/7" in out


def test_top_as_json(broker: Canned) -> None:
    ran = Ran("top", "--json", "--admin", broker.url)
    assert json.loads(ran.out) == {
        "broker": BROKER, "consumers": [CONSUMER, WELL], "publishers": [PUBLISHER], "queues": [QUEUE],
    }  # fmt: skip


def test_top_shows_queues_where_something_waits(broker: Canned) -> None:
    broker.answers["/v1/queues"] = {"queues": [QUEUE, {"name": "idle", "records": 0, "unacknowledged": 0}]}
    out = Ran("top", "--once", "--admin", broker.url).out
    assert "orders" in out
    assert "and 1 more queues" in out


def test_top_live_shows_rates_and_survives_a_broker_that_goes_away(broker: Canned) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=200, height=20, color_system=None)
    looks = 0

    def wait(seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            broker.answers["/v1/broker"] = {**BROKER, "published_records": 10**9, "published_bytes": 128 * 10**9}
        elif looks == 2:
            broker.answers["/v1/broker"] = b"gone"
        else:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watch(AdminClient(broker.url), console, 1.0, wait)
    out = console.file.getvalue()  # type: ignore[attr-defined]
    assert re.search(r"in [0-9,]{9,}/s", out)
    assert "out 0/s (0 B/s)" in out
    assert "is not headway's admin API" in out
    assert out.rindex("display/7") > out.index("in 1,000 (128 kB)")


# -- why ---------------------------------------------------------------------------------------------------------------


def test_why(broker: Canned) -> None:
    ran = Ran("why", "display/7", "--admin", broker.url)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0] == "display/7 is not connected; it was cut off too often and is readmitted in 12 s"
    assert lines[2].endswith("(50 d 12 h ago)  disconnect  flights/#")
    assert lines[3] == f"  {VERDICT['text']}"
    assert lines[4] == "  reason blocked · cause over_subscription · policy 'market data', rule 2"
    assert [re.sub(r"\s+", " ", line) for line in lines[5:7]] == [
        " blocked_time 31.2 s > 30 s",
        " lag_bytes 5 MB > 64 MB (did not hold)",
    ]
    assert ran.out.count("disconnect  flights/#") == 2
    assert "and 1 older" in Ran("why", "display/7", "-n", "1", "--admin", broker.url).out


def test_why_of_dry_runs_and_of_what_is_over(broker: Canned) -> None:
    discard = {"kind": "discard", "which": "lowest_priority"}
    verdicts = [
        {**VERDICT, "kind": "clear", "cause": None, "policy": ""},
        {**VERDICT, "enforced": False, "action": discard},
    ]
    broker.answers["/v1/why/x"] = {"client": "x\x1b]0;", "connected": True, "readmitted_in_s": 0, "verdicts": verdicts}
    out = Ran("why", "x", "--admin", broker.url).out
    assert "\x1b" not in out
    assert out.startswith("x\ufffd]0; is connected\n")
    assert "disconnect: over" in out
    assert "decided by the broker itself" in out
    assert "discard lowest priority (dry run)" in out


def test_why_of_a_client_without_trouble(broker: Canned) -> None:
    ran = Ran("why", "healthy", "--admin", broker.url)
    assert (ran.code, ran.out) == (0, "healthy is connected; nothing was ever decided about it\n")


def test_why_as_json(broker: Canned) -> None:
    ran = Ran("why", "display/7", "--json", "--admin", broker.url)
    assert json.loads(ran.out) == ANSWERS["/v1/why/display%2F7"]


def test_why_of_nobody_suggests_who_was_meant(broker: Canned) -> None:
    ran = Ran("why", "helthy", "--admin", broker.url)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "headway: nothing is known of a client (did you mean healthy?)\n"
    assert Ran("why", "zzz", "--admin", broker.url).err == "headway: nothing is known of a client\n"


# -- passwd ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["alice", "a.b", 'quo"te\\', "ünal", "true"])
def test_passwd_makes_a_line_that_the_config_takes(name: str) -> None:
    ran = Ran("passwd", name, stdin="correct horse\n")
    assert ran.code == 0
    users = parse_settings("[auth.users]\n" + ran.out).auth.users
    assert list(users) == [name]
    assert verify_password("correct horse", users[name])


def test_passwd_makes_a_token_and_shows_it_once() -> None:
    ran = Ran("passwd", "--token", "scraper")
    assert ran.code == 0
    (digest,) = parse_settings("[auth.tokens]\n" + ran.out).auth.tokens.values()
    assert digest_of(ran.err.split()[-1]) == digest
    assert Ran("passwd", "--token", "scraper").out != ran.out


@pytest.mark.parametrize(("name", "stdin"), [("a", ""), ("a", "\n"), ("", "x\n"), ("a\nb", "x\n"), ("a", "x" * 70_000)])
def test_passwd_refuses(name: str, stdin: str) -> None:
    ran = Ran("passwd", name, stdin=stdin)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1


# -- as a process of its own -------------------------------------------------------------------------------------------

HEADWAY = [sys.executable, "-c", "from headway.cli import main; main()"]


def test_a_ready_file_that_cannot_be_written_is_said_before_anything_listens(tmp_path: Path) -> None:
    for path in (tmp_path / "no" / "ready.json", tmp_path):
        ran = Ran("serve", "--ready-file", str(path))
        assert (ran.code, ran.out) == (2, "")
        assert ran.err == f"headway: --ready-file {path}: cannot be written there\n"


def test_print_config_is_a_config(tmp_path: Path) -> None:
    ran = Ran("serve", "--print-config")
    assert (ran.code, ran.out) == (0, default_text())
    file = tmp_path / "own.toml"
    file.write_text("[pool]\ndisk = 0")
    assert Ran("serve", "-c", str(file), "--print-config").out == "[pool]\ndisk = 0\n"


def test_serve_says_where_it_listens_and_ends_cleanly(tmp_path: Path) -> None:
    config, ready = tmp_path / "c.toml", tmp_path / "ready.json"
    config.write_text(
        '[server]\nadmin = "http://127.0.0.1:0"\n[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n'
        f'[pool]\nmemory = "20MB"\ndisk_path = "{tmp_path}/spill"\n'
    )
    arguments = [*HEADWAY, "serve", "--config", str(config), "--ready-file", str(ready)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            # Whoever is answered by the admin API knows that the start is over.
            ran = Ran("top", "--once", "--admin", line.split()[-1])
            assert (ran.code, ran.err) == (0, "")
            assert f"headway {__version__}" in ran.out
            said = json.loads(ready.read_text())
            assert said["pid"] == process.pid
            assert line == f"headway {__version__} listening on {said['listeners']['mqtt']}, admin {said['admin']}\n"
            assert Ran("why", "nobody", "--admin", said["admin"]).code == 1
            assert "none of the 0 consumers" in Ran("check", str(config), "--against", said["admin"]).out

            taken = tmp_path / "taken.toml"
            taken.write_text(f'[server]\nadmin = false\n[listeners.a]\nurl = "{said["listeners"]["mqtt"]}"\n')
            second = subprocess.run([*HEADWAY, "serve", "-c", str(taken)], capture_output=True, text=True, timeout=30)
            assert second.returncode == 2
            assert re.fullmatch(r"headway: listeners\.a: cannot listen on .*\n", second.stderr)
        finally:
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "Traceback" not in errors


def test_a_reader_that_has_seen_enough_draws_no_stack_trace() -> None:
    with subprocess.Popen([*HEADWAY, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()


def test_the_demo_is_not_installed_and_the_command_says_where_it_is() -> None:
    ended = CliRunner().invoke(app, ["demo", "--seconds", "5"])
    assert ended.exit_code == 2
    assert ended.stderr == "headway: the demo is not installed with headway: run make demo in a checkout\n"
    assert "demo" not in CliRunner().invoke(app, ["--help"]).stdout
