"""Freshness: how old records are when a subscriber that is slower than its feed gets them."""

from __future__ import annotations

from bench.driver import fresh
from bench.driver.flood import workers
from bench.driver.fresh import Manner
from bench.link import far_namespace
from bench.peers.peer import Peer, Running
from bench.workloads.workload import Case, Column, Figures, Workload

KEYS, RATE_PER_S, PAYLOAD_BYTES = 100, 1000, 200
READ_S, SETTLES_S = 35.0, 5.0
LATE_S = 30.0
MANNERS: dict[str, dict[str, float]] = {
    "20 kB/s": {"rate": 20_000},
    "20 kB/s of 1,000 keys": {"rate": 20_000, "keys": 1000},
    "50 kB/s": {"rate": 50_000},
    "100 kB/s": {"rate": 100_000},
    "50 kB/s, pauses": {"rate": 50_000, "reads_s": 4.0, "pauses_s": 2.0},
    "all once in 8 s": {"every_s": 8.0},
}


class Freshness(Workload):
    name = "freshness"
    about = (
        "subscribers that are slower than a feed of 200 kB/s (1,000 updates a second over 100 keys): steadily, with "
        "pauses of 2 s after 4 s, or everything at once in 8 s; from when an update was sent to when it was read, "
        "from the fifth second on; conflated where the broker has that"
    )
    columns = (
        Column("p99", "p99_ns", "ns", "low"), Column("p50", "p50_ns", "ns", "low"), Column("max", "max_ns", "ns"),
        Column("read/s", "bytes_per_s", "bytes", "high"), Column("updates read", "deliveries", "count"),
        Column("cut off", "disconnected", "count"), Column("peak memory", "peak_bytes", "bytes"),
    )  # fmt: skip

    def cases(self, tiny: bool) -> list[Case]:
        if tiny:
            return [Case("50 kB/s", {"rate": 50_000, "settles_s": 0.1, "seconds": 0.5})]
        return [Case(name, manner | {"settles_s": SETTLES_S, "seconds": READ_S}) for name, manner in MANNERS.items()]

    def suits(self, peer: Peer, case: Case) -> bool:
        return not peer.is_limit and peer.name in ("headway", "redis", "nats", "mosquitto")

    def run(self, running: Running, case: Case, seconds: float) -> Figures:
        settles_s, lasts_s = case.values["settles_s"], case.values["seconds"]
        manner = Manner(**{name: case.values[name] for name in Manner._fields if name in case.values})
        peer = running.peer
        wire = peer.conflating_wire or peer.wire
        conflate = "0s" if peer.conflating_wire is not None else None
        topics = [("freshness", f"k{number:03d}") for number in range(case.values.get("keys", KEYS))]
        with workers() as begin:
            reader = begin(fresh.read, wire, running.port, ("freshness", "+"), conflate, manner, settles_s, lasts_s,
                           far_namespace())  # fmt: skip
            writer = begin(fresh.feed, peer.wire, running.port, topics, PAYLOAD_BYTES, RATE_PER_S, settles_s + lasts_s)
            reader.go()
            writer.go()
            published = writer.answer(settles_s + lasts_s + LATE_S)
            got = reader.answer(LATE_S)
            running.check()
        figures: Figures = {"peak_bytes": running.process.peak_bytes(), "start_s": running.start_s}
        figures |= published | got
        return figures
