"""A stage for views in JavaScript: starts them in a page in Chromium, or in node, and hears what they show."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.interop.pahos import Paho, properties

import headway

MODULE = Path(headway.__file__).parent / "client" / "javascript"
DRIVER = Path(__file__).parent / "browser"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-headless-shell", "google-chrome"))), None)
TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".html": "text/html"}
CLOCK_S = 0.002
"""The browser's clock is coarser than ours."""


class Truth:
    """What was published and confirmed, and when; each value of a key is higher than the one before."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.version = 0
        self.latest: dict[str, int] = {}
        self.confirmed: list[tuple[float, str, int]] = []

    def publish(self, client: Paho, *numbers: int) -> None:
        for number in numbers:
            self.version += 1
            key, version = f"N{number}", self.version
            client.publish(self.topic, json.dumps({"tailnum": key, "version": version}), 1)
            self.latest[key] = version
            self.confirmed.append((time.time(), key, version))

    def delete(self, client: Paho, number: int) -> None:
        key = f"N{number}"
        # From now on the key may be gone, so it is taken out before it is.
        self.confirmed = [one for one in self.confirmed if one[1] != key]
        client.publish(self.topic, b"", 1, properties=properties("PUBLISH", UserProperty=[("key", key)]))
        del self.latest[key]

    def fault(self, told: dict[str, Any]) -> str | None:
        """Returns what is wrong with an image: it has all that was confirmed before the time as of which it says to
        be, and its changes add up to it."""
        if not told["adds"]:
            return "the changes do not add up to the image"
        upto_s = told["at"] - (told["stale"] or 0.0) - CLOCK_S
        for at_s, key, version in self.confirmed:
            if at_s < upto_s and told["image"].get(key, 0) < version:
                return f"{key}: {version} was confirmed {upto_s - at_s:.3f} s before, and it has {told['image']}"
        return None


class Shown:
    """What a view shows, as it told last."""

    def __init__(self, truth: Truth | None) -> None:
        self.truth = truth
        self.told: dict[str, Any] = {}
        self.error = ""
        self.fault: str | None = None
        self.pid = 0

    def hear(self, told: dict[str, Any]) -> None:
        if "error" in told:
            self.error = told["error"]
            return
        self.told = told
        if self.truth is not None:
            self.fault = self.fault or self.truth.fault(told)

    def __getattr__(self, name: str) -> Any:
        """Returns a field of what was told last; None if nothing was."""
        assert not self.error, self.error
        assert self.fault is None, self.fault
        return self.told.get(name)

    @property
    def true(self) -> bool:
        """Whether the view has the latest of all keys, and says that it is current."""
        assert self.truth is not None
        return bool(self.current) and self.image == self.truth.latest

    @property
    def stale_told(self) -> bool:
        return "stale" in (self.kinds or ())

    def signal(self, number: signal.Signals) -> None:
        """Stops all processes of the browser, or lets them go on."""
        os.killpg(self.pid, number)


class Stage:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shown: dict[str, Shown] = {}
        self._pages: dict[str, bytes] = {}
        stage = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.partition("?")[0]
                path = next((path for path in (DRIVER / name[1:], MODULE / name[1:]) if path.is_file()), None)
                body = stage._pages.get(name, b"") if path is None else path.read_bytes()
                self.send_response(200 if body else 404)
                self.send_header("Content-Type", TYPES.get(Path(name).suffix, "text/html"))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(204)
                self.end_headers()
                stage._shown[self.path].hear(json.loads(body))

            def log_message(self, *args: Any) -> None: ...

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, *args: Any) -> None:
                """Says nothing: the browser is killed in the middle of what it asks for."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @contextmanager
    def view(
        self, where: str, port: int, filter: str, truth: Truth | None = None, login: str = "", count: int = 0,
        **options: str | bool,
    ) -> Iterator[Shown]:
        """Opens a view in a page, or in node; ``login``: as it stands in the address; ``count``: so many views."""
        name, shown = self._told_at(truth)
        local = where == "node"
        what = {
            "module": str(MODULE / "headway-view.js") if local else "./headway-view.js", "told": self.url + name,
            "url": f"ws://{login}127.0.0.1:{port}", "filter": filter, "options": options,
            "count": count,
        }  # fmt: skip
        script = "many.mjs" if count else "view.mjs"
        words = urlencode({"what": json.dumps(what), "script": script})
        command = ["node", "--experimental-websocket", "--no-warnings", str(DRIVER / script), words]
        with self._running(command if local else self._chromium(f"/view.html?{words}"), shown):
            yield shown

    @contextmanager
    def page(self, text: str) -> Iterator[Shown]:
        """Opens a page of this text in Chromium, which tells what is in its element ``board``."""
        name, shown = self._told_at(None)
        say = f'fetch("{name}", {{method: "POST", body: JSON.stringify({{text: board.textContent}})}})'
        self._pages[f"/page{name}"] = f"{text}<script>setInterval(() => {say}, 20)</script>".encode()
        with self._running(self._chromium(f"/page{name}"), shown):
            yield shown

    def _told_at(self, truth: Truth | None) -> tuple[str, Shown]:
        """Returns where a view tells what it shows, and who hears it."""
        name = f"/told-{len(self._shown)}"
        shown = self._shown[name] = Shown(truth)
        return name, shown

    def _chromium(self, page: str) -> list[str]:
        return [
            str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0",
            f"--user-data-dir={self._folder / str(len(self._shown))}", self.url + page,
        ]  # fmt: skip

    @contextmanager
    def _running(self, command: list[str], shown: Shown) -> Iterator[None]:
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        shown.pid = process.pid
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # Debian's command is a script, and its child is the browser
            process.wait()


@cache
def node_has_websocket() -> bool:
    if shutil.which("node") is None:
        return False
    done = subprocess.run(["node", "--experimental-websocket", "--no-warnings", "-e", "WebSocket"], capture_output=True,
                          check=False)  # fmt: skip
    return done.returncode == 0


def need(where: str) -> None:
    """Skips a test where there is no such thing on this machine."""
    if where == "chromium" and CHROMIUM is None:
        pytest.skip("there is no Chromium: apt-get install -y chromium-headless-shell")
    if where == "node" and not node_has_websocket():
        pytest.skip("there is no node with WebSocket (20.10 or later)")
