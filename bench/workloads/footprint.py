"""Footprint: memory per idle connection and per stuck consumer, and the time to start."""

from __future__ import annotations

import time

from bench.driver import stuck
from bench.driver.flood import PATIENCE_S, Crowd, flood, workers
from bench.peers.peer import Running
from bench.workloads.workload import Case, Column, Figures, Workload

TOPIC = ("bench", "footprint")
SETTLE_S = 0.3
SETTLED = 0.005
LOOKS = 10


class Footprint(Workload):
    name = "footprint"
    about = (
        "memory per idle connection at 1,000 and 10,000, with and without a subscription; per stuck consumer; the time "
        "from the start of the program to its first answer"
    )
    columns = (
        Column("per connection", "connection_bytes", "bytes", "low"),
        Column("with a subscription", "subscribed_bytes", "bytes", "low"),
        Column("per stuck", "stuck_bytes", "bytes", "low"),
        Column("of each byte published", "held_share", "share", "low"),
        Column("before", "before_bytes", "bytes", "low"),
        Column("start s", "start_s", "s", "low"),
    )

    def cases(self, tiny: bool) -> list[Case]:
        counts = (20,) if tiny else (1_000, 10_000)
        idle = [Case(f"{count:,} idle", {"connections": count, "stuck": 0}) for count in counts]
        number = 3 if tiny else 100
        return [*idle, Case(f"{number} stuck", {"connections": 0, "stuck": number})]

    def run(self, running: Running, case: Case, seconds: float) -> Figures:
        before = settled(running)
        own = {"before_bytes": before, "start_s": running.start_s}
        if case.values["stuck"]:
            return own | self._stuck(running, case.values["stuck"], seconds)
        return own | self._idle(running, case.values["connections"], before)

    def _idle(self, running: Running, count: int, before: int) -> Figures:
        with workers() as begin:
            standing = begin(stuck.stand, running.peer.wire, running.port, TOPIC, count)
            connect_s = standing.answer(PATIENCE_S)["connect_s"]
            connected = settled(running)
            standing.go()
            standing.ready()
            subscribed = settled(running)
            running.check()
        return {
            "connection_bytes": (connected - before) / count, "subscribed_bytes": (subscribed - before) / count,
            "connections_per_s": count / connect_s,
        }  # fmt: skip

    def _stuck(self, running: Running, count: int, seconds: float) -> Figures:
        """Measures the memory per stuck subscriber; one healthy subscriber has the publisher go on."""
        payload_bytes = 128
        figures = flood(running, Crowd(TOPIC, [TOPIC], 1, count, payload_bytes), seconds)
        each = (figures["peak_bytes"] - figures["idle_bytes"]) / count
        return figures | {"stuck_bytes": each, "held_share": each / max(1, figures["published"] * payload_bytes)}


def settled(running: Running) -> int:
    """Returns the broker's memory, once it has stopped to change much."""
    now = running.process.rss_bytes()
    for _ in range(LOOKS):
        time.sleep(SETTLE_S)
        before, now = now, running.process.rss_bytes()
        if abs(now - before) <= SETTLED * before:
            break
    return now
