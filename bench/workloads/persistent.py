"""Persistent publishing: messages that the broker confirms once they would outlive it."""

from __future__ import annotations

from typing import Any

from bench.disk import sync_ns
from bench.driver import confirmed, subscribers
from bench.driver.flood import PATIENCE_S, TICK_SHARE, watch, workers
from bench.peers.peer import Peer, Running
from bench.wires.wire import Frame, Levels, measure
from bench.workloads.workload import Case, Column, Figures, Workload

MEASURED, WARMED_UP, USED = ("bench", "kept-0"), ("bench", "kept-1"), ("bench", "kept-2")
"""Names of queues, of one length, as a name is part of a delivery."""
DRAIN_S = 120.0


class Persistent(Workload):
    name = "persistent"
    about = (
        "1 and 4 publishers of persistent messages to one durable queue, each message confirmed, at most 100 and 1,000 "
        "unconfirmed per publisher; 128 B and 1 KiB; nobody consumes meanwhile, and all is drained afterwards"
    )
    columns = (
        Column("confirmed/s", "confirmed_per_s", "rate", "high"), Column("lost", "lost", "count"),
        Column("drained s", "drain_s", "s"), Column("peak memory", "peak_bytes", "bytes", "low"),
        Column("per CPU s", "confirmed_per_cpu_s", "rate"), Column("sync here", "sync_ns", "ns"),
        Column("CPU broker", "broker_cpu", "share"), Column("CPU driver", "driver_cpu", "share"),
    )  # fmt: skip
    unsuited = "nothing that outlives it, over a wire of queues"

    def cases(self, tiny: bool) -> list[Case]:
        return [
            Case(
                f"{number} x {size} B, {window:,} unconfirmed",
                {"publishers": number, "payload_bytes": size, "window": window},
            )
            for size in ((128,) if tiny else (128, 1024))
            for number in ((2,) if tiny else (1, 4))
            for window in ((100,) if tiny else (100, 1000))
        ]

    def peer(self, peer: Peer, case: Case) -> Peer:
        return peer.durable()

    def suits(self, peer: Peer, case: Case) -> bool:
        return peer.durable_wire is not None and peer.queue_wire is not None

    def run(self, running: Running, case: Case, seconds: float) -> Figures:
        """Measures confirmed publishing. ``lost``: messages that were confirmed and could not be drained."""
        assert running.peer.durable_wire is not None
        sync = sync_ns(running.instance.folder)
        frame = measure(running.peer.durable_wire, running.port, MEASURED, case.values["payload_bytes"])
        if seconds >= 1:
            _publish(running, WARMED_UP, case, frame, running.peer.warm_up_s)
            running.process.forget_peak()
        figures = _publish(running, USED, case, frame, seconds)
        rate = figures["confirmed_per_s"]
        return figures | {"confirmed_per_cpu_s": rate / max(figures["broker_cpu"], TICK_SHARE), "sync_ns": sync}


def _publish(running: Running, queue: Levels, case: Case, frame: Frame, seconds: float) -> Figures:
    wire, port, values = running.peer.durable_wire, running.port, case.values
    sizes = values["payload_bytes"], values["publishers"], values["window"]
    with workers() as begin:
        worker = begin(confirmed.flood, wire, port, queue, *sizes, seconds)
        idle_bytes, cpu_s = running.process.rss_bytes(), running.process.cpu_s()
        worker.go()
        watch(running, worker, seconds, False)
        said: dict[str, Any] = worker.answer(PATIENCE_S)
        cpu_s = running.process.cpu_s() - cpu_s
        sent: dict[str, Any] = worker.answer(2 * PATIENCE_S)
        peak_bytes = running.process.peak_bytes()
        reader = begin(subscribers.count, wire, port, [queue], 1, frame)
        reader.go()
        reader.go(sent["confirmed"])
        got: dict[str, Any] = reader.answer(DRAIN_S)
        running.check()
    return {
        "confirmed_per_s": said["confirmed"] / said["seconds"], "published": sent["published"],
        "confirmed": sent["confirmed"], "deliveries": got["deliveries"], "lost": sent["confirmed"] - got["deliveries"],
        "disconnected": got["disconnected"], "drain_s": got["drain_s"], "drained": got["drained"],
        "idle_bytes": idle_bytes, "peak_bytes": peak_bytes, "start_s": running.start_s,
        "broker_cpu": cpu_s / said["seconds"], "driver_cpu": said["cpu_s"] / said["seconds"],
    }  # fmt: skip
