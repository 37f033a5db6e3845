"""MQTT over WebSocket with mqtt.js, in node and in a page in Chromium, without TLS and with certificates of
`headway certs`, which the browser trusts as people have it trust their own CA."""

from __future__ import annotations

import http.server
import os
import shutil
import signal
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.waiting import PATIENCE_S, until

BROWSER = Path(__file__).parent / "browser"
NODE_MODULES = "/usr/share/nodejs"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-headless-shell", "google-chrome"))), None)
TLS = """
[listeners.{name}.tls]
certificate = "{folder}/server.pem"
key = "{folder}/server-key.pem"
"""
CONFIG = """
[listeners.web]
url = "ws://127.0.0.1:0"
[listeners.small]
url = "ws://127.0.0.1:0"
compression = true
[listeners.app]
url = "ws://127.0.0.1:0"
origins = ["https://app.example.com"]
[listeners.secure]
url = "wss://127.0.0.1:0"
[listeners.secure-small]
url = "wss://127.0.0.1:0"
compression = true
"""


@pytest.fixture(scope="module")
def house(start: BrokerFactory, certificates: Path) -> BrokerProcess:
    tls = (TLS.format(name=name, folder=certificates) for name in ("secure", "secure-small"))
    return start(CONFIG + "".join(tls), server={"send_buffer": "16KiB"})


def address(house: BrokerProcess, listener: str) -> str:
    secure = listener.startswith("secure")
    return f"{'wss://localhost' if secure else 'ws://127.0.0.1'}:{house.ports[listener]}/mqtt"


@pytest.mark.parametrize("listener", ["web", "small", "secure", "secure-small"])
@pytest.mark.parametrize("version", [4, 5])
def test_mqtt_js_in_node(
    house: BrokerProcess, certificates: Path, name: str, version: int, listener: str
) -> None:
    if shutil.which("node") is None or not Path(NODE_MODULES, "mqtt").exists():
        pytest.skip("mqtt.js is not here: apt-get install -y --no-install-recommends node-mqtt")
    command = ["node", str(BROWSER / "node.js"), address(house, listener), str(version), f"{name}/js"]
    env = {**os.environ, "NODE_PATH": NODE_MODULES, "NODE_EXTRA_CA_CERTS": str(certificates / "ca.pem")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.stdout.strip() == "[0,1,100,125,126,16384,200000]", done.stdout + done.stderr


# -- a page -----------------------------------------------------------------------------------------------------------


class Pages(NamedTuple):
    """Web servers with the page, and what it told them."""

    http: str
    https: str
    told: list[str]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Iterator[Pages]:
    """The page, and mqtt.js as it is for browsers."""
    bundler = shutil.which("browserify") or shutil.which("browserify-lite")
    if bundler is None or not Path(NODE_MODULES, "mqtt").exists():
        pytest.skip("mqtt.js for browsers is not here: apt-get install -y --no-install-recommends node-mqtt browserify")
    folder = tmp_path_factory.mktemp("page")
    shutil.copy(BROWSER / "page.html", folder)
    made = subprocess.run(
        [bundler, f"{NODE_MODULES}/mqtt/mqtt.js", "--standalone", "mqtt", "-o", str(folder / "mqtt.js")],
        env={**os.environ, "NODE_PATH": NODE_MODULES}, capture_output=True, text=True, timeout=2 * PATIENCE_S,
        check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    told: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(folder))

        def do_GET(self) -> None:
            if self.path.startswith("/done?"):
                told.append(self.path.partition("?")[2].replace("%20", " "))
            super().do_GET()

        def log_message(self, *args: Any) -> None: ...

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *args: Any) -> None:
            """Says nothing: the browser is killed in the middle of what it asks for."""

    plain, secure = (Server(("127.0.0.1", 0), Handler) for _ in range(2))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server-key.pem")
    secure.socket = context.wrap_socket(secure.socket, server_side=True)
    for server in (plain, secure):
        threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Pages(f"http://127.0.0.1:{plain.server_port}", f"https://localhost:{secure.server_port}", told)
    for server in (plain, secure):
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Path:
    """The home of somebody who trusts the CA."""
    folder = tmp_path_factory.mktemp("home")
    certutil = shutil.which("certutil")
    if certutil is not None:
        trusted = folder / ".pki" / "nssdb"
        trusted.mkdir(parents=True)
        for arguments in (["-N", "--empty-password"], ["-A", "-t", "C,,", "-n", "own", "-i", f"{certificates}/ca.pem"]):
            subprocess.run([certutil, "-d", f"sql:{trusted}", *arguments], check=True, capture_output=True)
    return folder


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install -y chromium-headless-shell")
@pytest.mark.parametrize(("listener", "told"), [
    ("web", "it works"), ("small", "it works"), ("app", "closed"), ("secure", "it works"), ("secure-small", "it works"),
])  # fmt: skip
def test_mqtt_js_in_a_page_in_chromium(
    house: BrokerProcess, pages: Pages, home: Path, name: str, tmp_path: Path, listener: str, told: str
) -> None:
    """And where pages of another origin only are let in, it is not."""
    secure = listener.startswith("secure")
    if secure and not (home / ".pki").exists():
        pytest.skip("no certificate can be given to Chromium: apt-get install -y --no-install-recommends libnss3-tools")
    pages.told.clear()
    page = f"{pages.https if secure else pages.http}/page.html?{address(house, listener)},5#{name}/page"
    browser = subprocess.Popen(
        [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}",
         "--remote-debugging-port=0", page],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        env={**os.environ, "HOME": str(home)},
    )  # fmt: skip
    try:
        until(lambda: pages.told, what="the page says something")
        assert pages.told[0] == told
    finally:
        os.killpg(browser.pid, signal.SIGKILL)  # Debian's command is a script, and its child is the browser
        browser.wait()
