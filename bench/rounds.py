"""Rounds, interleaved: in each, every case of every workload is given to each peer in turn, so that what changes on the
machine meanwhile hits all of them alike. Each measurement has a broker of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from bench.errors import BenchError
from bench.peers.peer import Peer, start
from bench.results import Run
from bench.workloads.workload import Case, Workload


class Step(NamedTuple):
    round: int
    workload: Workload
    case: Case
    peer: Peer

    def __str__(self) -> str:
        return f"round {self.round}: {self.workload.name}, {self.case.name}, {self.peer.title}"


def steps(workloads: Sequence[Workload], peers: Sequence[Peer], rounds: int, tiny: bool) -> list[Step]:
    return [
        Step(number, workload, case, peer)
        for number in range(1, rounds + 1)
        for workload in workloads
        for case in workload.cases(tiny)
        for peer in peers
        if workload.suits(peer, case)
    ]


def perform(plan: Sequence[Step], seconds: float, tell: Callable[[Step], Any]) -> Iterator[Run]:
    """Yields one run after the other. A peer's failure is kept in its run, and the rest goes on."""
    for step in plan:
        tell(step)
        run: Run = {
            "workload": step.workload.name, "case": step.case.name, "values": step.case.values, "peer": step.peer.name,
            "round": step.round,
        }  # fmt: skip
        try:
            with start(step.workload.peer(step.peer, step.case)) as running:
                run["figures"] = step.workload.run(running, step.case, seconds)
        except (BenchError, OSError) as error:
            run["error"] = " ".join(str(error).split()) or type(error).__name__
        yield run
