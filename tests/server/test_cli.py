"""The commands: help, mistakes, check, passwd, and serve as a process of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.server.canned import Canned, Ran
from typer.testing import CliRunner

from headway import __version__
from headway.cli.admin import AdminClient, NoBroker
from headway.cli.app import app
from headway.console import printable
from headway.server.config.auth import digest_of, verify_password
from headway.server.config.reading import default_text, parse_settings


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


@pytest.mark.parametrize("host", ["a..b", "a" * 300])
def test_name_that_no_host_can_have_is_a_mistake(host: str) -> None:
    ran = Ran("why", "x", "--admin", f"http://{host}:1")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert ran.err.startswith(f"headway: no broker can be reached at http://{host[:20]}")



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


@pytest.mark.parametrize(
    ("table", "content", "says"),
    [
        ('[auth.jwt]\nkeys_file = "{path}"', None, "auth.jwt.keys_file: {path}: "),
        ('[auth.jwt]\nkeys_file = "{path}"', b"{}", "auth.jwt.keys_file: {path}: is not a JWKS"),
        ('[auth.jwt]\nkeys_file = "{path}"', b'{"keys": []}', "{path}: has no key that can be used"),
        ('[auth.jwt]\nkeys_file = "{path}"', b"\xff", "auth.jwt.keys_file: {path}: "),
        ('[auth]\npassword_file = "{path}"', None, "{path}"),
        ('[auth]\npassword_file = "{path}"', b"ann:secret", "{path}:1: the password of ann is not a hash"),
        (
            '[server]\nadmin = "https://127.0.0.1:0"\n[server.tls]\ncertificate = "{path}"', None,
            "server.tls.certificate: {path}",
        ),
    ],
)
def test_check_opens_the_files_that_a_config_names(
    tmp_path: Path, table: str, content: bytes | None, says: str
) -> None:
    file, path = tmp_path / "headway.toml", tmp_path / "named"
    file.write_text(table.format(path=path) + f'\n[pool]\ndisk_path = "{tmp_path}"\n')
    if content is not None:
        path.write_bytes(content)
    ran = Ran("check", str(file))
    assert (ran.code, ran.err.count("\n"), "secret" in ran.err) == (2, 1, False), ran.out
    assert says.format(path=path) in ran.err


# -- passwd ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["alice", "a.b", 'quo"te\\', "ünal", "true"])
def test_passwd_makes_a_line_that_the_config_takes(name: str) -> None:
    ran = Ran("passwd", name, stdin="correct horse\n")
    assert ran.code == 0
    users = parse_settings("[auth.users]\n" + ran.out).auth.users
    assert list(users) == [name]
    assert verify_password("correct horse", users[name])


def test_passwd_makes_a_line_for_scram() -> None:
    ran = Ran("passwd", "--scram", "alice", stdin="correct horse\n")
    (hashed,) = parse_settings("[auth.users]\n" + ran.out).auth.users.values()
    assert hashed.startswith("SCRAM-SHA-256$15000:")
    assert verify_password("correct horse", hashed)


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

            # Of a terminal that is not in UTF-8.
            plain = os.environ | {"PYTHONIOENCODING": "ascii"}
            for asked in (["top", "--once"], ["why", "b\u00e4r"]):
                shown = subprocess.run(
                    [*HEADWAY, *asked, "--admin", said["admin"]], capture_output=True, text=True, timeout=30, env=plain
                )
                assert (shown.returncode, "Traceback" in shown.stderr) == (int(asked[0] == "why"), False)
                assert asked[0] == "why" or "memory ........ 0 B of" in shown.stdout

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
