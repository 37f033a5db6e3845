"""A broker as people run it: a process of its own, on free ports of the loopback, ended by its pid."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.interop.forked import Forked
from tests.interop.waiting import PATIENCE_S, until

from headway.cli import main

START_S = 60.0
LISTENER = '[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n'
_SERVER = {"admin": "http://127.0.0.1:0", "sweep": "50ms"}


class BrokerProcess:
    """``config`` is TOML without [server] (see ``server``); a listener is added where it has none. ``before``: what the
    process does before Python begins in it."""

    def __init__(
        self,
        folder: Path,
        config: str = "",
        *,
        server: Mapping[str, str | int] | None = None,
        before: Callable[[], None] | None = None,
    ) -> None:
        self.folder = folder
        self.config = folder / "headway.toml"
        self.log = folder / "log"
        self._server: dict[str, str | int] = {**_SERVER, **(server or {})}
        self.write(config)
        ready = folder / "ready.json"
        arguments = ["serve", "--config", str(self.config), "--ready-file", str(ready)]
        self.process: Forked | subprocess.Popen[bytes]
        if before is None:
            self.process = Forked(main, arguments, self.log)
        else:
            with self.log.open("wb") as log:
                command = [sys.executable, "-m", "headway", *arguments]
                self.process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=before)
        try:
            until(lambda: ready.exists() or self.process.poll() is not None, START_S, "the broker listens")
            assert self.process.poll() is None, f"the broker did not start:\n{self.log.read_text()}"
        except AssertionError:
            self.kill()
            raise
        told = json.loads(ready.read_text())
        self.ports = {name: urllib.parse.urlsplit(url).port for name, url in told["listeners"].items()}
        self.port: int = next(iter(self.ports.values()))
        self.admin: str = told["admin"]
        self.pid: int = told["pid"]
        self.login = ""
        """Name and password for the admin API, with a colon between; empty: it does not ask."""

    def write(self, config: str) -> None:
        """(Re)write the config file."""
        head = "[server]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in self._server.items())
        listener = "" if "[listeners." in config else LISTENER
        disk = "" if "[pool]" in config else f'[pool]\nmemory = "64MB"\ndisk_path = "{self.folder}"\n'
        self.config.write_text(head + listener + disk + config)

    # -- the admin API ----------------------------------------------------------------------------------------------

    @property
    def basic(self) -> str:
        """The login, as a header says it."""
        return f"Basic {base64.b64encode(self.login.encode()).decode()}"

    def call(self, path: str, method: str = "GET", body: str | bytes | None = None) -> tuple[int, bytes]:
        data = body.encode() if isinstance(body, str) else body
        request = urllib.request.Request(self.admin + path, data, method=method)
        if self.login:
            request.add_header("Authorization", self.basic)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def get(self, path: str) -> Any:
        status, body = self.call(path)
        assert status == 200, (path, status, body)
        return json.loads(body)

    def consumer(self, client: str, filter: str | None = None) -> dict[str, Any]:
        """The row of a subscription; empty when there is none."""
        rows = self.get(f"/v1/consumers?client={urllib.parse.quote(client, safe='')}")["consumers"]
        found = (row for row in rows if row["client"] == client and filter in (None, row["filter"]))
        return next(found, {})

    def publisher(self, client: str) -> dict[str, Any]:
        return next((row for row in self.get("/v1/publishers")["publishers"] if row["client"] == client), {})

    def verdicts(self, client: str) -> list[dict[str, Any]]:
        """Newest first; empty when nothing is known of the client."""
        status, body = self.call(f"/v1/why/{urllib.parse.quote(client)}")
        return json.loads(body)["verdicts"] if status == 200 else []

    # -- the process ------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def wait(self, seconds: float = PATIENCE_S) -> int:
        """Its exit code."""
        until(lambda: self.process.poll() is not None, seconds, "the broker ends")
        return self.process.returncode

    def kill(self) -> None:
        """The end, whatever state it is in."""
        if self.alive:
            self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Ask it to stop, and see that it does so without having lost its temper on the way."""
        try:
            if self.alive:
                self.signal(signal.SIGTERM)
                self.wait()
        finally:
            self.kill()
        assert self.process.returncode == 0, self.log.read_text()[-4000:]
        assert "Traceback" not in self.log.read_text(), self.log.read_text()[-4000:]
