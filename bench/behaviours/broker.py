"""The broker that the set is judged by: the policies in force are never enforced, and the others are its trials."""

from __future__ import annotations

import os
import signal
import time
import tomllib
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any

from bench.errors import BenchError, PeerFailed
from bench.peers.headway import Headway
from bench.peers.peer import Running
from headway.server.config import default_text, preset_text

IN_FORCE = "Headway"
CONFIG = """
[server]
admin = "http://127.0.0.1:{second_port}"
peer_sockets = {peer_sockets}
[listeners.mqtt]
url = "mqtt://127.0.0.1:{port}"
[listeners.amqp]
url = "amqp://127.0.0.1:{third_port}"
[pool]
memory = "256MB"
disk = "4GB"
max_client_share = "90%"
disk_path = "{folder}/spill"
[journal]
path = "{folder}/journal"
[[topic]]
filter = "recorded/#"
key = "topic"
keep = "1h"
"""


TELEMETRY = """
[telemetry]
path = "{lake}"
"""
END_S = 20.0


class JudgedHeadway(Headway):
    """Headway with the policies of ``in_force`` (a config file; None: the default one) and of ``more`` files. ``lake``
    is the folder that its telemetry goes to; None: it has none. ``remote``: it judges all clients as if they were on
    other hosts."""

    def __init__(
        self, in_force: Path | None = None, more: tuple[Path, ...] = (), lake: Path | None = None,
        remote: bool = False,
    ) -> None:  # fmt: skip
        text = default_text() if in_force is None else _read(in_force)
        policies = _tables(text, "policy")
        if not policies:
            raise BenchError(f"{in_force}: has no [[policy]]")
        for policy in policies:
            for rule in policy.get("rule", []):
                rule["enforce"] = False
        trials = _tables(resources.files("bench.behaviours").joinpath("policies.toml").read_text(), "trial")
        for trial in trials:
            if "preset" in trial:
                (policy,) = _tables(preset_text(trial.pop("preset")), "policy")
                trial["rule"] = policy["rule"]
        for path in more:
            found = _tables(_read(path), "trial") or _tables(_read(path), "policy")
            trials += found
        self.trials = [str(trial["name"]) for trial in trials]
        tables = [("policy", policy) for policy in policies] + [("trial", trial) for trial in trials]
        config = CONFIG.replace("{peer_sockets}", "false" if remote else "true")
        self.config = config + "\n".join(_written(kind, table) for kind, table in tables)
        if lake is not None:
            self.config += TELEMETRY.replace("{lake}", str(lake.absolute()))

    def settings(self) -> str:
        return self.config


def end(running: Running) -> None:
    """Ends the broker as its operator would, so that all it has recorded is written. Raises PeerFailed."""
    for pid in running.process.pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + END_S
    while not running.process.ended:
        if time.monotonic() > deadline:
            raise PeerFailed(f"{running.peer.name} does not end")
        time.sleep(0.05)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise BenchError(f"{path}: {error.strerror}") from None


def _tables(text: str, kind: str) -> list[dict[str, Any]]:
    try:
        return list(tomllib.loads(text).get(kind, []))
    except tomllib.TOMLDecodeError as error:
        raise BenchError(f"not TOML: {error}") from None


def _written(kind: str, table: dict[str, Any]) -> str:
    """A policy as TOML, its braces doubled, as a config of a peer is formatted."""
    lines = [f"[[{kind}]]", *(f"{key} = {_value(value)}" for key, value in table.items() if key != "rule")]
    for rule in table.get("rule", []):
        lines += [f"[[{kind}.rule]]", *(f"{key} = {_value(value)}" for key, value in rule.items())]
    return "\n".join(lines).replace("{", "{{").replace("}", "}}") + "\n"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(part)}" for key, part in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)
