"""The console behind real proxies, with the lines that docs/PROXIES.md has for them."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench.peers.peer import free_ports
from tests.interop.chromium import CHROMIUM, Page
from tests.interop.conftest import BrokerFactory
from tests.interop.console_stage import USERS, look, sign_in
from tests.interop.process import BrokerProcess
from tests.interop.waiting import PATIENCE_S, until
from tests.passwords import cheap_hash

DOCS = Path(__file__).parents[2] / "docs" / "PROXIES.md"
LIVE = "document.querySelector('#link').textContent === 'live'"
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/sbin:/bin")
CADDY = shutil.which("caddy")
PROXIES = [
    pytest.param("nginx", id="nginx", marks=pytest.mark.skipif(not NGINX, reason="no nginx: apt-get install nginx")),
    pytest.param("caddy", id="caddy", marks=pytest.mark.skipif(not CADDY, reason="no caddy: apt-get install caddy")),
    # Traefik is in no package. It leaves the path in front, as Caddy does with `handle`.
    pytest.param("keeps-path", id="keeps-path", marks=pytest.mark.skipif(not CADDY, reason="no caddy")),
]


@contextmanager
def proxy(kind: str, admin: str, port: int, folder: Path) -> Iterator[None]:
    """A proxy on this port of the loopback, as the page configures it."""
    folder.mkdir()
    page, backend = DOCS.read_text(), admin.removeprefix("http://")
    fence = "nginx" if kind == "nginx" else "caddy"
    found = re.search(rf"```{fence}\n(.*?)```", page, re.DOTALL)
    assert found is not None
    lines = found[1].replace("127.0.0.1:9883", backend)
    config = folder / "config"
    if kind == "nginx":
        config.write_text(
            f"daemon off; error_log {folder}/log; pid {folder}/pid; events {{}}\nhttp {{ access_log off;\n"
            + "".join(f"{what}_temp_path {folder};\n" for what in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
            + f"server {{ listen 127.0.0.1:{port};\n{lines}\n}} }}"
        )
        command = [str(NGINX), "-c", str(config), "-e", f"{folder}/log"]
    else:
        lines = lines.replace("handle_path", "handle") if kind == "keeps-path" else lines
        config.write_text(f"{{\nadmin off\n}}\n:{port} {{\nbind 127.0.0.1\n{lines}\n}}\n")
        command = [str(CADDY), "run", "--adapter", "caddyfile", "--config", str(config)]
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env={"HOME": str(folder), "PATH": "/usr/bin:/bin"})
    try:
        until(lambda: answers(port) or process.poll() is not None, what=f"{kind} listens")
        assert process.poll() is None, (folder / "out").read_text()
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def answers(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def ask(port: int, path: str, host: str, **headers: str) -> tuple[int, Any]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Host": host, **headers})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@pytest.fixture
def behind(start: BrokerFactory) -> Iterator[tuple[BrokerProcess, int]]:
    """A broker with users, and the port of a proxy that it trusts."""
    port = free_ports(1)[0]
    server: dict[str, Any] = {
        "trusted_origins": [f"http://ops.localhost:{port}"], "trusted_proxies": ["127.0.0.1"], "base_path": "/headway",
    }  # fmt: skip
    users = USERS.format(ann=cheap_hash("of ann"), bob=cheap_hash("of bob"))
    broker = start(users, server=server)
    yield broker, port
    broker.kill()


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install -y chromium-headless-shell")
@pytest.mark.parametrize("kind", PROXIES)
def test_console_works_below_a_path(behind: tuple[BrokerProcess, int], kind: str, tmp_path: Path) -> None:
    broker, port = behind

    async def story(page: Page) -> None:
        await page.open(f"http://ops.localhost:{port}/headway")
        await sign_in(page, "ann", "of ann")
        await page.until(LIVE)
        assert await page.value("location.pathname") == "/headway/"
        # Its buttons: a request that a browser sends with an Origin.
        moved = "(await import('/headway/console/request.js')).send('/v1/moves', {move: 'kick', key: 'nobody'})"
        said = await page.value(f"(async () => {{ try {{ await {moved} }} catch (no) {{ return no.message }} }})()")
        assert "answers" not in said, said
        assert [one for one in page.complaints if "401 (Unauthorized)" not in one and "/v1/moves" not in one] == []

    with proxy(kind, broker.admin, port, tmp_path / "proxy"):
        look(tmp_path / "browser", story)
        own, evil = f"ops.localhost:{port}", "http://evil.example"
        assert ask(port, "/headway/v1/broker", own)[0] == 401, "the login is asked for as ever"
        status, said = ask(port, "/headway/v1/broker", own, Origin=evil)
        assert (status, f'trusted_origins = ["{evil}"]' in json.loads(said)["error"]) == (403, True)
        status, said = ask(port, "/headway/v1/broker", "evil.example")
        assert (status, 'trusted_origins = ["https://evil.example"]' in json.loads(said)["error"]) == (403, True)


def test_forwarded_address_is_the_one_that_the_trusted_proxy_added(behind: tuple[BrokerProcess, int]) -> None:
    broker, _ = behind
    request = urllib.request.Request(
        f"{broker.admin}/v1/broker", headers={"Authorization": "Basic YW5uOng=", "X-Forwarded-For": "8.8.8.8, 9.9.9.9"}
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=PATIENCE_S)
    refused.value.close()
    assert "refused 9.9.9.9 at the admin API ('ann')" in broker.log.read_text()
