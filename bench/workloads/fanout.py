"""Fan-out: one publisher, one topic, ever more subscribers."""

from __future__ import annotations

from bench.driver.flood import Crowd, flood
from bench.peers.peer import Peer, Running
from bench.workloads.workload import FLOOD_COLUMNS, Case, Figures, Workload

TOPIC = ("bench", "fanout")


class Fanout(Workload):
    name = "fanout"
    about = "1 publisher as fast as the broker reads, to 1, 10, 100 and 1,000 subscribers; payloads of 128 B and 1 KiB"
    columns = FLOOD_COLUMNS

    def cases(self, tiny: bool) -> list[Case]:
        return [
            Case(f"{subscribers:,} x {size} B", {"subscribers": subscribers, "payload_bytes": size})
            for size in ((128,) if tiny else (128, 1024))
            for subscribers in ((1, 5) if tiny else (1, 10, 100, 1000))
        ]

    def suits(self, peer: Peer, case: Case) -> bool:
        return True

    def run(self, running: Running, case: Case, seconds: float) -> Figures:
        values = case.values
        return flood(running, Crowd(TOPIC, [TOPIC], values["subscribers"], 0, values["payload_bytes"]), seconds)
