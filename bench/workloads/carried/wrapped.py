"""Wrapped: what a protocol costs inside something else, TLS or a WebSocket."""

from __future__ import annotations

from bench.driver.flood import Crowd, flood
from bench.peers.peer import Peer, Running
from bench.workloads.workload import FLOOD_COLUMNS, Case, Figures, Workload

TOPIC = ("bench", "wrapped")


class Wrapped(Workload):
    columns = FLOOD_COLUMNS
    base_case = "50"
    _inside: str

    def __init__(self, inside: str, title: str) -> None:
        self.name = self._inside = inside
        self.about = (
            f"protocols inside {title}, and Headway's own without: 1 publisher as fast as the broker reads, to 50 and "
            "1,000 subscribers, and to 50 beside 100 that never read; 128 B"
        )

    def cases(self, tiny: bool) -> list[Case]:
        numbers = ((5, 0), (5, 3)) if tiny else ((50, 0), (50, 100), (1000, 0))
        return [
            Case(f"{healthy:,} beside {stuck} stuck" if stuck else f"{healthy:,}", {"healthy": healthy, "stuck": stuck})
            for healthy, stuck in numbers
        ]

    def suits(self, peer: Peer, case: Case) -> bool:
        return peer.inside == self._inside or peer.name == "headway"

    def run(self, running: Running, case: Case, seconds: float) -> Figures:
        return flood(running, Crowd(TOPIC, [TOPIC], case.values["healthy"], case.values["stuck"]), seconds)
