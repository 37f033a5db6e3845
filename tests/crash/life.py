"""One life of the broker: a process on ports that the system chose, with the journal that outlives it."""

from __future__ import annotations

import json
import os
import select
import signal
import time
import urllib.parse
from pathlib import Path

from tests.crash import eager
from tests.interop.forked import Forked
from tests.interop.waiting import until

START_S = 120.0
FULL_DISK = "cannot write to"
CONFIG = """
[server]
admin = "http://127.0.0.1:0"
sweep = "50ms"
[listeners.amqp]
url = "amqp://127.0.0.1:0"
[listeners.mqtt]
url = "mqtt://127.0.0.1:0"
[listeners.stomp]
url = "stomp://127.0.0.1:0"
[listeners.openwire]
url = "openwire://127.0.0.1:0"
[pool]
memory = "{memory}"
disk = "{disk}"
disk_path = "{folder}"
[flap]
base = "10ms"
max = "10ms"
[telemetry]
enabled = false
[journal]
path = "{journal}"
segment = "{segment}"
fsync = "{fsync}"
[[topic]]
filter = "graves/#"
keep = "1h"
[[topic]]
filter = "m/a/#"
keep = "1h"
[[topic]]
filter = "w/#"
keep = "1h"
"""
"""Recorded topics are in streams of their own: dead letters and what they settle, publishes at QoS 2 and their ids, and
batches of writers are each in two of them."""


class Life:
    """Begins at once; ``listening`` waits until it can be spoken to."""

    def __init__(
        self, folder: Path, number: int, *, fsync: str = "always", segment: str = "100KB", memory: str = "64MB",
        disk: str = "1GB",
    ) -> None:  # fmt: skip
        folder = folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / f"log-{number}"
        self.log.touch()  # it may be killed before it has opened it
        self._ready = folder / f"ready-{number}.json"
        config = folder / f"config-{number}.toml"
        config.write_text(
            CONFIG.format(
                memory=memory, disk=disk, folder=folder, journal=folder / "journal", segment=segment, fsync=fsync
            )
        )
        self.began_s = time.monotonic()
        arguments = [str(folder), "serve", "--config", str(config), "--ready-file", str(self._ready)]
        self.process = Forked(eager.main, arguments, self.log)
        self.pid = self.process.pid
        self.amqp = self.mqtt = self.stomp = self.openwire = 0
        self.admin = ""

    def listening(self) -> None:
        until(lambda: self._ready.exists() or self.process.poll() is not None, START_S, "the broker listens")
        assert self.process.poll() is None, f"the broker did not start:\n{self.log.read_text()[-4000:]}"
        told = json.loads(self._ready.read_text())
        ports = {name: urllib.parse.urlsplit(url).port for name, url in told["listeners"].items()}
        self.amqp, self.mqtt = ports["amqp"], ports["mqtt"]
        self.stomp, self.openwire = ports["stomp"], ports["openwire"]
        self.admin = told["admin"]

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.began_s

    def let_live(self, seconds: float) -> None:
        """Until it is so old, or dead."""
        end = os.pidfd_open(self.pid)
        try:
            select.select([end], [], [], max(0.0, seconds - self.age_s))
        finally:
            os.close(end)

    def kill(self) -> None:
        """Without a word."""
        if self.process.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
        self.process.wait()

    def freeze(self) -> None:
        """Stops it where it is, until it is killed."""
        if self.process.poll() is None:
            os.kill(self.pid, signal.SIGSTOP)

    def reload(self) -> None:
        """Has it read its config again."""
        os.kill(self.pid, signal.SIGHUP)

    def stop(self) -> None:
        """Asks it to end."""
        os.kill(self.pid, signal.SIGTERM)

    def complaints(self, *, full_disk: bool = False) -> list[str]:
        """What its log has that should not be there; of a full disk it may speak if there was one."""
        lines = self.log.read_text(errors="replace").splitlines()
        if full_disk:
            lines = [line for line in lines if FULL_DISK not in line]
        found = [at for at, line in enumerate(lines) if "Traceback" in line or "ERROR" in line]
        return ["\n".join(lines[found[0] : found[0] + 60])] if found else []
