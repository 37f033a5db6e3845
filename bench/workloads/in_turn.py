"""In turn: many publishers of one small message each, and one message by itself."""

from __future__ import annotations

from typing import Any

from bench.driver import in_turn
from bench.driver.flood import PATIENCE_S, TICK_SHARE, warm_up, watch, workers
from bench.peers.peer import Peer, Running
from bench.wires.wire import measure
from bench.workloads.workload import Case, Column, Figures, Workload

TOPIC = ("bench", "in-turn")
PAYLOAD_BYTES = 32


class InTurn(Workload):
    name = "in-turn"
    about = (
        "500 publishers send one message of 32 B each, and the next once 5 subscribers have all of them; and one "
        "publisher with one subscriber: each message by itself. p50, p99: until all of a round were read"
    )
    columns = (
        Column("published/s", "published_per_s", "rate", "high"), Column("p50", "p50_ns", "ns", "low"),
        Column("p99", "p99_ns", "ns", "low"), Column("max", "max_ns", "ns"),
        Column("per CPU s", "published_per_cpu_s", "rate"),
        Column("CPU broker", "broker_cpu", "share"), Column("CPU driver", "driver_cpu", "share"),
    )  # fmt: skip

    def cases(self, tiny: bool) -> list[Case]:
        many = (5, 2) if tiny else (500, 5)
        return [
            Case(f"{publishers} to {subscribers}", {"publishers": publishers, "subscribers": subscribers})
            for publishers, subscribers in ((1, 1), many)
        ]

    def suits(self, peer: Peer, case: Case) -> bool:
        """Where subscribers acknowledge, or deliveries differ in length, the driver cannot tell a round's end."""
        wire = peer.wire
        return not (peer.is_limit or wire.ack_every or wire.ends_with or wire.slack_bytes)

    def run(self, running: Running, case: Case, seconds: float) -> Figures:
        wire, port, values = running.peer.wire, running.port, case.values
        frame = measure(wire, port, TOPIC, PAYLOAD_BYTES)
        warm_up(running, seconds)
        sizes = values["publishers"], values["subscribers"], PAYLOAD_BYTES
        with workers() as begin:
            worker = begin(in_turn.rounds, wire, port, TOPIC, *sizes, frame, seconds)
            cpu_s = running.process.cpu_s()
            worker.go()
            watch(running, worker, seconds, False)
            got: dict[str, Any] = worker.answer(PATIENCE_S)
            cpu_s = running.process.cpu_s() - cpu_s
            running.check()
        took_s, published = got["seconds"], got["published"]
        return {key: value for key, value in got.items() if key.endswith("_ns")} | {
            "published": published, "published_per_s": published / took_s, "rounds": got["rounds"],
            "published_per_cpu_s": published / max(cpu_s, TICK_SHARE), "broker_cpu": cpu_s / took_s,
            "driver_cpu": got["cpu_s"] / took_s, "start_s": running.start_s,
        }  # fmt: skip
