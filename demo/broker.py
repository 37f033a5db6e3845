"""The demo's own broker: its configuration, its process, and what its admin API says."""

from __future__ import annotations

import ctypes
import http.client
import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import IO, Any

START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 5.0
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)
# A broker on loopback is not behind the proxy that the environment may name.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

MEMORY = "24MB"
DISK = "64MB"

CONFIG = f"""\
[server]
admin = "http://127.0.0.1:0"
send_buffer = "32KiB"

[listeners.mqtt]
url = "mqtt://127.0.0.1:0"

# For pages: the board.
[listeners.web]
url = "ws://127.0.0.1:0"

[pool]
memory = "{MEMORY}"
disk = "{DISK}"
disk_path = "DISK_PATH"
max_client_share = "50%"

[flap]
base = "4s"
max = "1m"

# What happens is put on record, for the last part of the demo.
[telemetry]
path = "LAKE_PATH"
every = "2s"

# The latest flight of each aircraft is kept, so that whoever cannot follow can be given just that.
[[topic]]
filter = "flights/#"
key = "/tailnum"

# The boards in the terminals. Healthy and troubled ones alike: the policy does not know which is which.
[[policy]]
name = "departure boards"
topics = ["flights/EWR/#", "flights/JFK/#", "flights/LGA/#"]

[[policy.rule]]
name = "does not read"
when = {{ blocked_time = "6s" }}
then = "notify"

[[policy.rule]]
name = "far behind"
when = {{ lag_bytes = "1MB" }}
for = "1s"
then = "offline"

[[policy.rule]]
name = "gone deaf"
when = {{ blocked_time = "15s" }}
then = "disconnect"

# The airlines' desks get their flights confirmed, and may be at most so far behind.
[[policy]]
name = "airline desks"
topics = ["flights/+/US"]

[[policy.rule]]
name = "acknowledges late"
when = {{ credit_exhausted_time = "1s" }}
for = "1s"
then = "notify"

[[policy.rule]]
name = "too far behind"
when = {{ lag_records = 2000 }}
then = {{ action = "discard", which = "oldest", keep_records = 1000 }}

# Who wants everything and cannot follow sees each aircraft's latest flight.
[[policy]]
name = "whole map"
topics = ["flights/#"]

[[policy.rule]]
name = "cannot follow"
when = {{ lag_age = "2s" }}
then = "conflate"

# Asked for by name.
[[policy]]
name = "strict"
topics = ["flights/strict/#"]

[[policy.rule]]
name = "stops reading"
when = {{ blocked_time = "1500ms" }}
then = "disconnect"
"""


def config_text(spill: Path, lake: Path | None) -> str:
    """The configuration with its paths filled in; without a ``lake`` it keeps no telemetry."""
    text = CONFIG.replace("DISK_PATH", str(spill)).replace("LAKE_PATH", str(lake))
    return text if lake is not None else text.replace("[telemetry]", "[telemetry]\nenabled = false")


class BrokerFailed(Exception):
    """The broker did not start, or it ended; the text says why."""


class BrokerProcess:
    """A broker process on free ports. ``text`` is its configuration; that and its log are in ``folder``."""

    def __init__(self, folder: Path, text: str) -> None:
        self.config = folder / "demo.toml"
        self.config.write_text(text)
        ready = folder / "ready.json"
        self._log_path = folder / "broker.log"
        with self._log_path.open("wb") as log:
            self._process = _start(self.config, ready, log)
        try:
            said = self._await_ready(ready)
        except BaseException:
            self.stop()
            raise
        self.admin: str = said["admin"]
        url = urllib.parse.urlsplit(said["listeners"]["mqtt"])
        self.web: str = said["listeners"].get("web", "")
        self.host, self.port = url.hostname or "127.0.0.1", url.port or 0
        self.pid = self._process.pid

    def _await_ready(self, ready: Path) -> dict[str, Any]:
        end = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < end:
            self.check()
            try:
                said: dict[str, Any] = json.loads(ready.read_text())
            except (FileNotFoundError, json.JSONDecodeError):
                time.sleep(0.02)
                continue
            return said
        raise BrokerFailed(f"the broker was not ready after {START_TIMEOUT_S:.0f} s: {self._last_words()}")

    def check(self) -> None:
        """Raise if the broker has ended."""
        code = self._process.poll()
        if code is not None:
            raise BrokerFailed(f"the broker ended by itself (exit {code}): {self._last_words()}")

    def _last_words(self) -> str:
        lines = self._log_path.read_text(errors="replace").strip().splitlines()
        return " / ".join(lines[-5:]) or "it said nothing"

    def ask(self, path: str) -> dict[str, Any] | None:
        """The admin API's answer; None where it knows nothing of it, or does not answer in time."""
        try:
            with _opener.open(self.admin + path, timeout=ANSWER_TIMEOUT_S) as answer:
                said: dict[str, Any] = json.load(answer)
                return said
        except urllib.error.HTTPError:
            return None
        except (OSError, ValueError, http.client.HTTPException):
            self.check()
            return None

    def state(self, filter: str, **terms: str) -> list[dict[str, Any]] | None:
        """The latest record of each key; None where the broker does not answer."""
        said = self.ask(f"/v1/state/{urllib.parse.quote(filter, safe='')}?{urllib.parse.urlencode(terms)}")
        return None if said is None else list(said["records"])

    def why(self, client: str) -> list[dict[str, Any]]:
        """The verdicts on a client, oldest first."""
        said = self.ask("/v1/why/" + urllib.parse.quote(client, safe=""))
        return list(reversed(said["verdicts"])) if said else []

    def stop(self) -> None:
        if self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _start(config: Path, ready: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "headway", "serve", "--config", str(config), "--ready-file", str(ready)]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        preexec_fn=die_with_the_demo,
    )  # fmt: skip


def die_with_the_demo() -> None:
    """In a child: should the demo be killed, the kernel stops it too."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
