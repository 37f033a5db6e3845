"""Journal overhead: what the journal costs those whose records are not persistent."""

from __future__ import annotations

from bench.driver import confirmed
from bench.driver.flood import PATIENCE_S, Crowd, flood, workers
from bench.peers.peer import Peer, Running
from bench.workloads.workload import FLOOD_COLUMNS, Case, Column, Figures, Workload

TOPIC, QUEUE = ("bench", "beside"), ("bench", "kept")
PAYLOAD_BYTES, WINDOW = 128, 2000


class JournalOverhead(Workload):
    name = "beside"  # beside a journal: the name that people and recorded results use
    about = (
        "1 publisher as fast as the broker reads, QoS 0, to 10 subscribers, 128 B; beside it 2,000 persistent messages "
        "a second to a durable queue over AMQP, each confirmed: without a journal, which keeps nothing, and with one"
    )
    columns = (
        *FLOOD_COLUMNS[:1], FLOOD_COLUMNS[6], Column("confirmed/s", "confirmed_per_s", "rate"),
        Column("confirm p99", "confirm_p99_ns", "ns"), *FLOOD_COLUMNS[1:6], *FLOOD_COLUMNS[7:],
    )  # fmt: skip
    base_case = "no journal"
    unsuited = "no journal of its own to do without"

    def cases(self, tiny: bool) -> list[Case]:
        """The one to compare with stands between the others."""
        sizes = {"subscribers": 2 if tiny else 10}
        rate = 200 if tiny else 2000
        return [
            Case("nothing persistent", sizes | {"journal": False, "rate_per_s": 0}),
            Case("journal", sizes | {"journal": True, "rate_per_s": rate}),
            Case("no journal", sizes | {"journal": False, "rate_per_s": rate}),
            Case("journal, nothing persistent", sizes | {"journal": True, "rate_per_s": 0}),
        ]

    def peer(self, peer: Peer, case: Case) -> Peer:
        return peer.durable(journal=case.values["journal"])

    def suits(self, peer: Peer, case: Case) -> bool:
        return peer.is_ours and peer.queue_wire is None

    def run(self, running: Running, case: Case, seconds: float) -> Figures:
        crowd = Crowd(TOPIC, [TOPIC], case.values["subscribers"], 0, PAYLOAD_BYTES)
        rate = case.values["rate_per_s"]
        if not rate:
            return flood(running, crowd, seconds)
        wire, port = running.peer.durable_wire, running.peer.durable_port(running.instance)
        with workers() as begin:
            writer = begin(confirmed.steady, wire, port, QUEUE, PAYLOAD_BYTES, rate, WINDOW)
            writer.go()
            figures = flood(running, crowd, seconds)
            writer.go("stop")
            said = writer.answer(2 * PATIENCE_S)
        return figures | {key: value for key, value in said.items() if key.startswith("confirm")}
