"""Subscribers of a state who share a selector, deltas or a live page: what a record costs, however many they are.

Two things are told apart: a record that nobody is told of, which is the work of finding that out, and a record that
all are told of, whose cost is that of delivering it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

from bench.driver.flood import PATIENCE_S, workers
from bench.driver.sharing import LAST, TOLD, share
from bench.errors import PeerFailed
from bench.peers.peer import Running
from bench.workloads.workload import Case, Column, Figures

COUNTS, TINY_COUNTS = (0, 10, 100, 1_000), (3,)
SHARED: dict[str, tuple[tuple[str, str], ...]] = {
    "selector": (("selector", "v >= 1000"),),
    "delta": (("selector", "v >= 1000"), ("delta", "true")),
    "live page": (("order_by", "/v DESC"), ("top", "20")),
}
"""Options that all subscribers of a case have. One more option is one more row."""
UNTOLD_PER_S, TOLD_PER_S = 5_000, 50
PACE_S = 0.01
PAGE_KEYS, OTHER_KEYS = 20, 10_000
FIELD = b".".ljust(90, b".")
COLUMNS = (
    Column("CPU, record untold", "untold_ns", "ns", "low"), Column("CPU per delivery", "delivery_ns", "ns", "low"),
    Column("told", "deliveries", "count"), Column("untold", "untold", "count"),
)  # fmt: skip


def cases(tiny: bool) -> list[Case]:
    return [
        Case(f"{count:,} share a {what}", {"subscribers": count, "shared": what})
        for what in SHARED
        for count in (TINY_COUNTS if tiny else COUNTS)
    ]


def run(running: Running, case: Case, seconds: float) -> Figures:
    """Measures both kinds of records at a rate each. All that was to be told has to be told to all."""
    count = case.values["subscribers"]
    with closing(_Writer(running)) as writer, workers() as begin:
        writer.publish([_page(key, 1_000) for key in range(PAGE_KEYS)])
        writer.publish([_other(key) for key in range(OTHER_KEYS)])
        time.sleep(PACE_S)
        readers = begin(share, running.port, "state/#", count, SHARED[case.values["shared"]])
        untold, untold_s = writer.paced(UNTOLD_PER_S, seconds, _other)
        told, told_s = writer.paced(TOLD_PER_S, seconds, _told)
        writer.publish([_page(0, 1_000_000, b'%b",' % LAST)])
        readers.go()
        got = readers.answer(2 * PATIENCE_S)
        running.check()
    # A page tells what changed in a turn, so of two updates of a key in one turn the last.
    all_told = got["deliveries"] == told * count or (case.values["shared"] == "live page" and told)
    if got["ended"] != count or not all_told:
        raise PeerFailed(f"{got['deliveries']} were told, and not {told} to each of {count}")
    return {
        "untold_ns": 1e9 * untold_s / untold, "delivery_ns": 1e9 * told_s / got["deliveries"] if count else None,
        "deliveries": got["deliveries"], "untold": untold, "peak_bytes": running.process.peak_bytes(),
        "start_s": running.start_s,
    }  # fmt: skip


class _Writer:
    """Publishes; and tells what CPU time the broker took meanwhile."""

    def __init__(self, running: Running) -> None:
        self._running, self._wire = running, running.peer.wire
        self._sock = self._wire.open(running.port, "publisher")

    def publish(self, payloads: list[bytes]) -> None:
        self._sock.sendall(b"".join(self._wire.publication(self._sock, ("state", "all"), one) for one in payloads))

    def paced(self, rate_per_s: int, seconds: float, payload: Callable[[int], bytes]) -> tuple[int, float]:
        """Returns how many were published, and the broker's CPU seconds."""
        time.sleep(PACE_S)
        before, began, number = self._running.process.cpu_s(), time.monotonic(), 0
        while (passed := time.monotonic() - began) < seconds:
            due = int(passed * rate_per_s) + 1
            self.publish([payload(n) for n in range(number, due)])
            number = due
            time.sleep(PACE_S)
        return number, self._running.process.cpu_s() - before

    def close(self) -> None:
        self._sock.close()


def _other(number: int) -> bytes:
    """Makes an update that matches no selector and is on no page."""
    return b'{"k":"o%d","v":%d,"f":"%b"}' % (number % OTHER_KEYS, number % 1_000, FIELD)


def _told(number: int) -> bytes:
    """Makes an update that all are told of."""
    return _page(number % PAGE_KEYS, 2_000 + number, b'%b%d",' % (TOLD, number))


def _page(key: int, value: int, mark: bytes = b"") -> bytes:
    """Makes an update of a key that is on the page, and stays there. ``mark``: a member that is another each time."""
    return b'{"k":"p%d","v":%d,%b"f":"%b"}' % (key, value, mark, FIELD)
