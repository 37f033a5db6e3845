"""Compression: what messages for browsers cost in bytes and CPU time, compressed once for all or for each client."""

from __future__ import annotations

import time

from bench.driver import deflated
from bench.driver.flood import PATIENCE_S, workers
from bench.peers.peer import Peer, Running
from bench.wires.web import MqttWeb, NatsWeb
from bench.workloads.workload import Case, Column, Figures, Workload

TOPIC = ("bench", "flights")
KNOWN_S = 2.5
"""Subscribers are so old before the clock runs: Headway sends new ones small pieces, to learn how fast they read."""


class Compression(Workload):
    name = "compression"
    about = (
        "JSON of 300 B to subscribers over WebSocket at a steady rate, in clear and with permessage-deflate; what a "
        "delivery is on the wire, and what it takes of the broker's CPU"
    )
    columns = (
        Column("broker's CPU each", "cpu_ns", "ns", "low"), Column("bytes each", "wire_bytes_each", "count"),
        Column("lost", "lost", "count"),
    )  # fmt: skip
    unsuited = "it does not compress"

    def cases(self, tiny: bool) -> list[Case]:
        sizes = ((5, 200),) if tiny else ((50, 1_000), (50, 10_000), (500, 1_000))
        return [
            Case(
                f"{subscribers} at {rate:,}/s, {'compressed' if compressed else 'in clear'}",
                {"subscribers": subscribers, "rate_per_s": rate, "compressed": compressed},
            )
            for subscribers, rate in sizes
            for compressed in (False, True)
        ]

    def suits(self, peer: Peer, case: Case) -> bool:
        return peer.compressing() is not None

    def peer(self, peer: Peer, case: Case) -> Peer:
        return (peer.compressing() if case.values["compressed"] else None) or peer

    def run(self, running: Running, case: Case, seconds: float) -> Figures:
        wire, port, values = running.peer.wire, running.port, case.values
        assert isinstance(wire, MqttWeb | NatsWeb)
        with workers() as begin:
            reader = begin(deflated.count, wire, port, TOPIC, values["subscribers"])
            writer = begin(deflated.feed, wire, port, TOPIC, seconds, values["rate_per_s"])
            time.sleep(KNOWN_S)
            cpu_s = running.process.cpu_s()
            writer.go()
            sent = writer.answer(PATIENCE_S + seconds)
            reader.go("stop")
            got = reader.answer(PATIENCE_S)
            cpu_s = running.process.cpu_s() - cpu_s
            running.check()
        deliveries = got["records"] * values["subscribers"]
        return {
            "cpu_ns": 1e9 * cpu_s / max(1, deliveries), "wire_bytes_each": got["wire_bytes"] / max(1, deliveries),
            "lost": sent["published"] - got["records"],
            "compressed_frames": got["compressed"], "start_s": running.start_s,
        }  # fmt: skip
