"""Stall: how long the broker's loop does not answer while the disk syncs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from bench.driver import confirmed, ping
from bench.driver.flood import PATIENCE_S, watch, workers
from bench.peers.headway import Headway, ask
from bench.peers.peer import Instance, Peer, Running
from bench.wires.mqtt import Mqtt
from bench.workloads.workload import Case, Column, Figures, Workload

QUEUE = ("bench", "kept")
PAYLOAD_BYTES, WINDOW = 128, 50_000
EVERY_S = 0.002


class SlowHeadway(Headway):
    """Headway on a disk that takes ``sync_s`` longer for each sync of the journal (``bench.slow_disk``)."""

    def __init__(self, sync_s: float = 0.0) -> None:
        self.sync_s = sync_s

    def durable(self, *, journal: bool = True) -> Headway:
        kept = SlowHeadway(self.sync_s)
        kept.config = super().durable(journal=journal).config
        return kept

    def command(self, instance: Instance) -> list[str]:
        return [sys.executable, "-m", "bench.slow_disk", str(self.sync_s), *super().command(instance)[3:]]

    def env(self, instance: Instance) -> Mapping[str, str] | None:
        return os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}


class Stall(Workload):
    name = "stall"
    about = (
        "an MQTT client pings every 2 ms while persistent messages of 128 B are published over AMQP, each confirmed, "
        "on a disk whose syncs take 0.5 s longer, and as it is"
    )
    columns = (
        Column("longest round trip", "max_ns", "ns", "low"), Column("p99.9", "p999_ns", "ns", "low"),
        Column("p99", "p99_ns", "ns", "low"), Column("p50", "p50_ns", "ns", "low"),
        Column("longest turn", "longest_turn_ns", "ns", "low"), Column("loop late s", "loop_late_s", "s"),
        Column("driver late by", "sent_late_ns", "ns"), Column("confirmed/s", "confirmed_per_s", "rate"),
        Column("slowest confirm", "confirm_max_ns", "ns"), Column("CPU broker", "broker_cpu", "share"),
    )  # fmt: skip
    base_case = "nothing persistent"
    unsuited = "its disk cannot be slowed here"

    def cases(self, tiny: bool) -> list[Case]:
        slow_s = 0.05 if tiny else 0.5
        return [
            Case("nothing persistent", {"rate_per_s": 0, "sync_s": 0.0}),
            *(
                Case(f"{rate:,}/s, {said}", {"rate_per_s": rate, "sync_s": sync_s})
                for rate in ((500,) if tiny else (2_000, 20_000))
                for said, sync_s in (("disk as it is", 0.0), (f"sync {slow_s:g} s", slow_s))
            ),
        ]

    def peer(self, peer: Peer, case: Case) -> Peer:
        return SlowHeadway(case.values["sync_s"]).durable()

    def suits(self, peer: Peer, case: Case) -> bool:
        return peer.is_ours and peer.queue_wire is None

    def run(self, running: Running, case: Case, seconds: float) -> Figures:
        """Measures the round trips; ``unanswered`` pings would be worse than any time."""
        wire, port = running.peer.durable_wire, running.peer.durable_port(running.instance)
        rate = case.values["rate_per_s"]
        with workers() as begin:
            writer = begin(confirmed.steady, wire, port, QUEUE, PAYLOAD_BYTES, rate, WINDOW) if rate else None
            pinger = begin(ping.ping, Mqtt(), running.port, seconds, EVERY_S)
            cpu_s = running.process.cpu_s()
            if writer is not None:
                writer.go()
            pinger.go()
            watch(running, pinger, seconds, False)
            figures: Figures = pinger.answer(PATIENCE_S)
            cpu_s = running.process.cpu_s() - cpu_s
            told = ask(running, "/v1/broker")
            if writer is not None:
                writer.go("stop")
                said = writer.answer(2 * PATIENCE_S)
                figures |= {key: value for key, value in said.items() if key.startswith("confirm")}
            running.check()
        return figures | {
            "lost": figures["unanswered"], "longest_turn_ns": told["longest_turn_ms"] * 1e6,
            "loop_late_s": told["loop_late_s"], "broker_cpu": cpu_s / seconds, "start_s": running.start_s,
        }  # fmt: skip
