"""Latency: how long a message takes at a steady pace, with and without stuck subscribers."""

from __future__ import annotations

from bench.driver.flood import Crowd, pace
from bench.peers.peer import Peer, Running
from bench.workloads.workload import Case, Column, Figures, Workload

TOPIC = ("bench", "latency")
WARM_UP_S = 1.0


class Latency(Workload):
    name = "latency"
    about = (
        "50 subscribers, 1,000 and 10,000 messages/s of 128 B, 0 and 100 stuck; from when a message was due to when it "
        "was read, after a second to warm up"
    )
    columns = (
        Column("p99", "p99_ns", "ns", "low"), Column("p50", "p50_ns", "ns", "low"),
        Column("p99.9", "p999_ns", "ns", "low"), Column("max", "max_ns", "ns"), Column("lost", "lost", "count"),
        Column("cut off", "disconnected", "count"), Column("peak memory", "peak_bytes", "bytes"),
        Column("published/s", "published_per_s", "rate"),
        Column("CPU broker", "broker_cpu", "share"), Column("CPU driver", "driver_cpu", "share"),
    )  # fmt: skip

    def cases(self, tiny: bool) -> list[Case]:
        healthy = 3 if tiny else 50
        return [
            Case(f"{rate:,}/s, {stuck} stuck", {"healthy": healthy, "rate_per_s": rate, "stuck": stuck})
            for rate in ((200,) if tiny else (1_000, 10_000))
            for stuck in ((0, 2) if tiny else (0, 100))
        ]

    def suits(self, peer: Peer, case: Case) -> bool:
        return not (peer.is_limit and case.values["stuck"])

    def run(self, running: Running, case: Case, seconds: float) -> Figures:
        values = case.values
        crowd = Crowd(TOPIC, [TOPIC], values["healthy"], values["stuck"])
        return pace(running, crowd, seconds, values["rate_per_s"], min(WARM_UP_S, seconds))
