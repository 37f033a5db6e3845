"""Headway, this very tree."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.peers.peer import Instance, Peer, Running
from bench.wires.durable import AmqpDurable
from bench.wires.mqtt import Mqtt
from bench.wires.wire import Wire


class Headway(Peer):
    name, title, program = "headway", "Headway", sys.executable
    install = "make setup"
    is_ours = True
    wire: Wire = Mqtt()
    conflating_wire: Wire | None = Mqtt(5)
    version_arguments = ("-m", "headway", "--version")
    config_name = "headway.toml"
    config = """
[server]
admin = "http://127.0.0.1:{second_port}"
[listeners.mqtt]
url = "mqtt://127.0.0.1:{port}"
connections_max = 20_000
[pool]
memory = "32MB"
disk = "1GB"
disk_path = "{folder}/spill"
[[topic]]
filter = "catchup/#"
key = "topic"
[[topic]]
filter = "freshness/#"
key = "topic"
[[policy]]
name = "default"
[[policy.rule]]
when = {{ blocked_time = "1s" }}
then = "notify"
"""
    durable_wire = AmqpDurable()
    durable_listener = """
[listeners.amqp]
url = "amqp://127.0.0.1:{third_port}"
"""
    """A listener for persistent records over AMQP."""
    durable_journal = """
[journal]
path = "{folder}/journal"
"""
    why: Sequence[str] = (
        "connections_max: 10,000 idle ones and the driver's own.",
        "pool.memory: what may wait in memory for slow consumers, all together, before it goes to disk. The default is "
        "a tenth of the host's memory.",
        "pool.disk is the default; disk_path is a folder of the bench.",
        "topic: the latest record per key is kept for catchup and freshness, where a topic is a key. No other workload "
        "uses it.",
        "policy: as the default, which loses nothing and only tells; after 1 s and not 30 s, as a run takes seconds.",
        "persistent, restart, beside and stall: [journal] path in that folder too, all else of it the default (each "
        "group of records is synced before it is confirmed); pool.disk 8GB, for what waits in a queue is in the "
        "journal and counts there; and an AMQP listener beside MQTT's.",
    )

    source: Path | None = None
    """The source folder of another checkout, to be run instead of this one."""

    def env(self, instance: Instance) -> Mapping[str, str] | None:
        return os.environ | {"PYTHONPATH": str(self.source)} if self.source else None

    def durable(self, *, journal: bool = True) -> Headway:
        kept = type(self)()
        kept.config = kept.config.replace('disk = "1GB"', 'disk = "8GB"') + kept.durable_listener
        kept.config += kept.durable_journal if journal else ""
        return kept

    def durable_port(self, instance: Instance) -> int:
        return instance.third_port

    def command(self, instance: Instance) -> list[str]:
        return [sys.executable, "-m", "headway", "serve", "--config", str(instance.folder / self.config_name)]

    def dealt_with(self, running: Running) -> str | None:
        """Says so once waiting records are on disk, where they cost no memory."""
        return "on disk" if ask(running, "/v1/broker")["pools"][0]["disk_bytes"] > 0 else None


def admin(running: Running) -> str:
    """Returns the address of the broker's admin API."""
    return f"http://127.0.0.1:{running.instance.second_port}"


def ask(running: Running, path: str) -> dict[str, Any]:
    """Returns what the admin API answers."""
    with urllib.request.urlopen(admin(running) + path, timeout=10) as answer:
        told: dict[str, Any] = json.load(answer)
    return told
