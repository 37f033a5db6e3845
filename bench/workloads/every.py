"""All workloads, in the order they are run."""

from __future__ import annotations

from bench.workloads.carried.compression import Compression
from bench.workloads.carried.wrapped import Wrapped
from bench.workloads.catchup import Catchup
from bench.workloads.fanout import Fanout
from bench.workloads.filters import Filters
from bench.workloads.footprint import Footprint
from bench.workloads.freshness import Freshness
from bench.workloads.in_turn import InTurn
from bench.workloads.isolation import Isolation
from bench.workloads.journal_overhead import JournalOverhead
from bench.workloads.latency import Latency
from bench.workloads.persistent import Persistent
from bench.workloads.restart import Restart
from bench.workloads.stall import Stall
from bench.workloads.state import State
from bench.workloads.states.image import Image
from bench.workloads.stopped.one_stops import OneStops
from bench.workloads.workload import Workload
from bench.workloads.workqueue import Acknowledged, Workqueue

EVERY: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Fanout(), Isolation(), OneStops(), Latency(), InTurn(), Footprint(), Catchup(), Filters(), Workqueue(),
        Acknowledged(), Persistent(), Restart(), JournalOverhead(), Stall(), Freshness(), State(), Image(),
        Wrapped("tls", "TLS"), Wrapped("websocket", "a WebSocket"), Compression(),
    )
}  # fmt: skip
