"""State: pages of the latest record per key, in the order of a field, what a key costs in memory, and what a record
costs where many subscribers share a selector or a page."""

from __future__ import annotations

import time
from contextlib import closing

from bench.driver import kept_state
from bench.driver.flood import PATIENCE_S, workers
from bench.errors import PeerFailed
from bench.peers.peer import Peer, Running
from bench.workloads.footprint import settled
from bench.workloads.states import shared
from bench.workloads.workload import Case, Column, Figures, Workload

TOPIC = ("state", "all")
PAYLOAD_BYTES = 128
PAGES = 100
UPDATES_PER_S = 2000
PAUSE_S = 0.02
MEMORY = "4GB"
PAGE = "/v1/state/state%2F%23?order_by=/v%20DESC&top=20"
COUNT = "/v1/state/state%2F%23?top=0"


class State(Workload):
    name = "state"
    about = (
        f"the state of a topic with keys of {PAYLOAD_BYTES} B: the first page of 20 in the order of a field, which "
        f"makes the order unless that is declared; {PAGES} more, with nothing published and with {UPDATES_PER_S:,} "
        "updates a second; memory. Then subscribers who share one selector, its deltas, or one live page of 20: the "
        "broker's CPU time for a record that none of them is told of, and for each delivery of one that all are told of"
    )
    columns = (
        Column("page p99", "page_p99_ns", "ns", "low"), Column("page p50", "page_p50_ns", "ns", "low"),
        Column("p99, updates", "updated_p99_ns", "ns", "low"), Column("p50, updates", "updated_p50_ns", "ns", "low"),
        Column("first page", "first_ns", "ns", "low"), Column("per key", "key_bytes", "bytes", "low"),
        Column("order, per key", "order_bytes", "bytes", "low"), Column("updates", "updates", "count"),
        *shared.COLUMNS,
    )  # fmt: skip

    def cases(self, tiny: bool) -> list[Case]:
        counts = (300,) if tiny else (10_000, 100_000, 1_000_000)
        pages = 5 if tiny else PAGES
        cases = [Case(f"{keys:,} keys", {"keys": keys, "pages": pages}) for keys in counts]
        most = {"keys": counts[-1], "pages": pages, "declared": True}
        return [*cases, Case(f"{counts[-1]:,} keys, declared order", most), *shared.cases(tiny)]

    def suits(self, peer: Peer, case: Case) -> bool:
        return peer.name == "headway"

    def peer(self, peer: Peer, case: Case) -> Peer:
        kept = type(peer)()
        kept.config = peer.config.replace('memory = "32MB"', f'memory = "{MEMORY}"')
        kept.config += '[[topic]]\nfilter = "state/#"\nkey = "/k"\n'
        kept.config += 'order_by = ["/v DESC"]\n' if case.values.get("declared") else ""
        return kept

    def run(self, running: Running, case: Case, seconds: float) -> Figures:
        if "shared" in case.values:
            return shared.run(running, case, seconds)
        keys, pages = case.values["keys"], case.values["pages"]
        before = settled(running)
        with workers() as begin:
            writer = begin(
                kept_state.fill, running.peer.wire, running.port, TOPIC, keys, PAYLOAD_BYTES, UPDATES_PER_S
            )
            writer.go()
            writer.answer(PATIENCE_S)
            _until_full(running, keys)
            full = settled(running)
            with closing(_asker(running, PAGE)) as asker:
                first_ns, _ = asker.ask()
                ordered = settled(running)
                quiet = _pages(asker, pages)
                writer.go()
                updated = _pages(asker, pages)
                writer.go()
                updates = writer.answer(PATIENCE_S)["updates"]
            running.check()
        return {
            "first_ns": first_ns, "key_bytes": (full - before) / keys, "order_bytes": (ordered - full) / keys,
            "page_p50_ns": quiet[len(quiet) // 2], "page_p99_ns": quiet[len(quiet) * 99 // 100],
            "updated_p50_ns": updated[len(updated) // 2], "updated_p99_ns": updated[len(updated) * 99 // 100],
            "updates": updates, "peak_bytes": running.process.peak_bytes(), "start_s": running.start_s,
        }  # fmt: skip


def _asker(running: Running, path: str) -> kept_state.Asker:
    return kept_state.Asker(running.instance.second_port, path)


def _until_full(running: Running, keys: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    with closing(_asker(running, COUNT)) as asker:
        while asker.ask()[1]["keys"] < keys:
            if time.monotonic() > deadline:
                raise PeerFailed("the state is not complete")
            time.sleep(PAUSE_S)


def _pages(asker: kept_state.Asker, count: int) -> list[int]:
    """Returns how long each page took, sorted."""
    took = []
    for _ in range(count):
        took_ns, answer = asker.ask()
        if len(answer["records"]) != 20:
            raise PeerFailed(f"a page of {len(answer['records'])} records")
        took.append(took_ns)
        time.sleep(PAUSE_S)
    return sorted(took)
