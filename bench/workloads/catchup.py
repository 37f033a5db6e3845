"""Catch-up: a subscriber pauses while keyed updates pass, and then wants to be current."""

from __future__ import annotations

from bench.driver import catch_up, publisher
from bench.driver.flood import PATIENCE_S, wait_until_read, workers
from bench.peers.peer import Peer, Running
from bench.workloads.workload import Case, Column, Figures, Workload

PAYLOAD_BYTES = 128
PUBLISH_S = 300.0


class Catchup(Workload):
    name = "catchup"
    about = (
        "a subscriber reads nothing while 1,000,000 updates of 128 B pass over 5,000 keys, then until it is current: "
        "by replay of all of them, and by conflation (the latest per key) where the broker has that"
    )
    columns = (
        Column("current after", "catchup_s", "s", "low"), Column("bytes read", "catchup_bytes", "bytes", "low"),
        Column("updates read", "deliveries", "count"), Column("keys current", "keys_current", "count"),
        Column("lost", "lost", "count"), Column("cut off", "disconnected", "count"),
        Column("taken meanwhile", "published", "count"),
        Column("peak memory", "peak_bytes", "bytes", "low"),
    )  # fmt: skip

    def cases(self, tiny: bool) -> list[Case]:
        sizes = {"updates": 2_000, "keys": 50} if tiny else {"updates": 1_000_000, "keys": 5_000}
        return [Case("replay", sizes | {"conflate": None}), Case("conflation", sizes | {"conflate": "0s"})]

    def suits(self, peer: Peer, case: Case) -> bool:
        return not peer.is_limit and (case.values["conflate"] is None or peer.conflating_wire is not None)

    def run(self, running: Running, case: Case, seconds: float) -> Figures:
        """Measures one subscriber. ``published`` is what the broker took while the subscriber was away; should it stop
        to take any, the subscriber comes back then. ``catchup_s`` is None for one that never gets current."""
        updates, keys, conflate = (case.values[key] for key in ("updates", "keys", "conflate"))
        wire = running.peer.wire
        reading_wire = wire if conflate is None else running.peer.conflating_wire
        topics = [("catchup", f"k{number:06d}") for number in range(keys)]
        last = ("catchup", "the-end")
        with workers() as begin:
            reader = begin(catch_up.catch_up, reading_wire, running.port, ("catchup", "+"), conflate, updates, keys)
            writer = begin(publisher.keyed, wire, running.port, topics, PAYLOAD_BYTES, updates, last)
            reader.go()
            writer.go()
            sent = writer.answer(PUBLISH_S)
            writer.go()
            if "held_up" not in sent:
                writer.answer(PATIENCE_S)
                wait_until_read(running)
            running.check()
            reader.go()
            got = reader.answer(PUBLISH_S)
            running.check()
            peak_bytes = running.process.peak_bytes()
        published = sent.get("published", sent.get("held_up"))
        figures: Figures = got | {
            "catchup_s": got["catchup_s"] if got["current"] else None, "published": published,
            "published_per_s": published / sent["seconds"], "peak_bytes": peak_bytes, "start_s": running.start_s,
            "lost": updates + 1 - got["deliveries"] if conflate is None else None,
        }  # fmt: skip
        return figures
