"""One stops: what the others get before a subscriber stops reading, and after."""

from __future__ import annotations

import time

from bench.driver import publisher, stuck, subscribers
from bench.driver.flood import PATIENCE_S, Crowd, warm_up, workers
from bench.driver.worker import Worker
from bench.errors import PeerFailed
from bench.peers.peer import Running
from bench.wires.wire import measure
from bench.workloads.workload import Case, Column, Figures, Workload

TOPIC = ("bench", "stopped")
SETTLE_S = 1.0
PARTS = 10
"""So many times as long as before it is measured afterwards; it ends when nobody has got anything for a while."""
STILL, STILL_PARTS = 0.02, 3
"""A share of the rate before that is as good as nothing; and for so many parts it has to be."""


class OneStops(Workload):
    name = "one-stops"
    about = (
        "50 healthy subscribers and one more, which reads and acknowledges for a while and then does nothing any more; "
        "as fast as the broker reads. The healthy ones' deliveries a second before, and in the last third of ten times "
        "as long after"
    )
    columns = (
        Column("after/s", "after_per_s", "rate", "high"), Column("before/s", "before_per_s", "rate"),
        Column("of before", "share", "share", "high"), Column("least/s", "least_per_s", "rate"),
        Column("still after s", "still_s", "s"), Column("cut off", "disconnected", "count"),
        Column("the one who stopped", "dealt", "word"), Column("peak memory", "peak_bytes", "bytes", "low"),
        Column("CPU broker", "broker_cpu", "share"),
    )  # fmt: skip

    def cases(self, tiny: bool) -> list[Case]:
        return [
            Case(f"{size} B", {"healthy": 5 if tiny else 50, "payload_bytes": size})
            for size in ((128,) if tiny else (128, 16384))
        ]

    def run(self, running: Running, case: Case, seconds: float) -> Figures:
        crowd = Crowd(TOPIC, [TOPIC], case.values["healthy"], 1, case.values["payload_bytes"])
        wire, port = running.peer.wire, running.port
        frame = measure(wire, port, TOPIC, crowd.payload_bytes)
        warm_up(running, seconds)
        with workers() as begin:
            reader = begin(subscribers.count, wire, port, [TOPIC], crowd.healthy, frame)
            one = begin(stuck.stop, wire, port, TOPIC, frame)
            writer = begin(publisher.flood, wire, port, TOPIC, crowd.payload_bytes, PATIENCE_S + 20 * seconds)
            for worker in (reader, one, writer):
                worker.go()
            time.sleep(SETTLE_S)
            cpu_s, began = running.process.cpu_s(), time.monotonic()
            before = _rate(running, reader, seconds)
            one.go("stop")
            after: list[float] = []
            while len(after) < PARTS and not _still(after, before):
                after.append(_rate(running, reader, seconds))
            cpu = (running.process.cpu_s() - cpu_s) / (time.monotonic() - began)
            one.go("stop")
            gone = one.answer(PATIENCE_S)["gone"]
            reader.go("lost")
            lost = reader.answer(PATIENCE_S)
        still = next((place for place, rate in enumerate(after) if rate < STILL * before), None)
        last = after[-STILL_PARTS:]
        return {
            "before_per_s": before, "after_per_s": sum(last) / len(last), "least_per_s": min(after),
            "share": sum(last) / len(last) / before if before else 0.0, "rates_per_s": after,
            "still_s": None if still is None else still * seconds, "disconnected": lost,
            "dealt": "disconnected" if gone else "left as it is", "peak_bytes": running.process.peak_bytes(),
            "broker_cpu": cpu, "start_s": running.start_s,
        }  # fmt: skip


def _still(after: list[float], before: float) -> bool:
    return len(after) >= STILL_PARTS and max(after[-STILL_PARTS:]) < STILL * before


def _rate(running: Running, reader: Worker, seconds: float) -> float:
    """Returns the healthy ones' deliveries a second, for so long from now on."""
    began, first = time.monotonic(), _count(reader)
    time.sleep(seconds)
    if running.process.ended:
        raise PeerFailed(f"{running.peer.name} died")
    count = _count(reader)
    return (count - first) / (time.monotonic() - began)


def _count(reader: Worker) -> int:
    reader.go("count")
    count: int = reader.answer(PATIENCE_S)
    return count

