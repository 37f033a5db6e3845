"""Fan-out: one publisher, one topic, ever more subscribers."""

from __future__ import annotations

from bench.driver.flood import Crowd, flood
from bench.peers.peer import Peer, Running
from bench.workloads.workload import FLOOD_COLUMNS, Case, Figures, Workload

TOPIC = ("bench", "fanout")


def sized(subscribers: int, payload_bytes: int) -> Case:
    values = {"subscribers": subscribers, "payload_bytes": payload_bytes}
    return Case(f"{subscribers:,} x {payload_bytes} B", values)


class Fanout(Workload):
    name = "fanout"
    about = (
        "1 publisher as fast as the broker reads, to 1, 10, 100 and 1,000 subscribers; payloads of 128 B and 1 KiB; to "
        "50 of 16 KiB"
    )
    columns = FLOOD_COLUMNS

    def cases(self, tiny: bool) -> list[Case]:
        if tiny:
            return [sized(1, 128), sized(5, 128)]
        return [sized(number, size) for size in (128, 1024) for number in (1, 10, 100, 1000)] + [sized(50, 16_384)]

    def suits(self, peer: Peer, case: Case) -> bool:
        return True

    def run(self, running: Running, case: Case, seconds: float) -> Figures:
        values = case.values
        return flood(running, Crowd(TOPIC, [TOPIC], values["subscribers"], 0, values["payload_bytes"]), seconds)
