"""Isolation: what stuck subscribers cost the healthy ones, and the broker."""

from __future__ import annotations

from bench.driver.flood import Crowd, flood
from bench.peers.peer import Peer, Running
from bench.workloads.workload import FLOOD_COLUMNS, Case, Column, Figures, Workload

TOPIC = ("bench", "isolation")


class Isolation(Workload):
    name = "isolation"
    about = (
        "50 healthy subscribers beside 0, 10, 100 and 500 that subscribe and never read; 128 B as fast as the broker "
        "reads"
    )
    columns = (*FLOOD_COLUMNS, Column("stuck dealt with after", "dealt_s", "s"), Column("how", "dealt", "word"))
    base_case = "0 stuck"

    def cases(self, tiny: bool) -> list[Case]:
        healthy = 5 if tiny else 50
        numbers = (0, 3) if tiny else (0, 10, 100, 500)
        return [Case(f"{stuck} stuck", {"healthy": healthy, "stuck": stuck}) for stuck in numbers]

    def suits(self, peer: Peer, case: Case) -> bool:
        """The bare sender has no way to go on beside somebody who is stuck."""
        return not (peer.is_limit and case.values["stuck"])

    def run(self, running: Running, case: Case, seconds: float) -> Figures:
        return flood(running, Crowd(TOPIC, [TOPIC], case.values["healthy"], case.values["stuck"]), seconds)
