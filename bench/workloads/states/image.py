"""Image: the time until a client has the latest record of every key, and again after it was away; memory per key."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import closing

from bench.driver.flood import wait_until_read
from bench.driver.message import keyed_payload
from bench.errors import PeerFailed
from bench.peers.peer import Peer, Running
from bench.wires.images import IMAGES, Images
from bench.wires.wire import HOST
from bench.workloads.footprint import settled
from bench.workloads.workload import Case, Column, Figures, Workload
from headway.client import View, ViewError

PAYLOAD_BYTES = 128
KEYS, MANY_KEYS, TINY_KEYS = 100_000, 1_000_000, 500
AWAY_S, TINY_AWAY_S = 10.0, 0.2
UPDATES_PER_S = 2_000
STEP = 6_700_417
"""A prime, by which the keys of updates are spread over all."""
BATCH, PACE_S = 500, 0.01
MORE = {
    "headway": '[[topic]]\nfilter = "image/#"\nkey = "topic"\n', "redis": "",
    "nats": 'jetstream {{ store_dir: "{folder}/jetstream", max_memory_store: 4GB }}\n',
}  # fmt: skip
"""Settings that each has for this beside the rest."""


class Image(Workload):
    name = "image"
    about = (
        f"the time until a client has the latest record of all {KEYS:,} keys of {PAYLOAD_BYTES} B, and again after it "
        f"was away for {AWAY_S:g} s with {UPDATES_PER_S:,} updates a second: Headway's snapshot, and what changed "
        "since an offset; Redis' hash, with pub/sub by hand; a watched bucket of NATS, and from its sequence. Memory"
    )
    columns = (
        Column("current after", "image_ns", "ns", "low"), Column("again", "again_ns", "ns", "low"),
        Column("read again", "again_keys", "count"), Column("changed meanwhile", "changed_keys", "count"),
        Column("per key", "key_bytes", "bytes", "low"), Column("a View opens", "view_ns", "ns", "low"),
    )  # fmt: skip

    def cases(self, tiny: bool) -> list[Case]:
        if tiny:
            few = {"keys": TINY_KEYS, "away_s": TINY_AWAY_S}
            return [Case(f"{TINY_KEYS} keys", few), Case(f"{TINY_KEYS} keys, View", few | {"view": True})]
        timed = Case(f"{KEYS:,} keys", {"keys": KEYS, "away_s": AWAY_S})
        view = Case(f"{KEYS:,} keys, View", {"keys": KEYS, "away_s": None, "view": True})
        return [timed, view, Case(f"{MANY_KEYS:,} keys, memory", {"keys": MANY_KEYS, "away_s": None})]

    def suits(self, peer: Peer, case: Case) -> bool:
        return peer.is_ours and peer.name in IMAGES if case.values.get("view") else peer.name in IMAGES

    def peer(self, peer: Peer, case: Case) -> Peer:
        kept = type(peer)()
        kept.config = peer.config.replace('memory = "32MB"', 'memory = "4GB"') + MORE[peer.name]
        return kept

    def run(self, running: Running, case: Case, seconds: float) -> Figures:
        images, keys, away_s = IMAGES[running.peer.name](), case.values["keys"], case.values["away_s"]
        images.prepare(running.port)
        before = settled(running)
        truth: dict[str, bytes] = {}
        with closing(running.peer.wire.open(running.port, "publisher")) as sock:
            running.peer.wire.will_publish(sock)
            for first in range(0, keys, BATCH):
                numbers = range(first, min(keys, first + BATCH))
                sock.sendall(_updates(images, truth, ((number, number) for number in numbers)))
            wait_until_read(running)
            figures: Figures = {"key_bytes": (settled(running) - before) / keys, "start_s": running.start_s}
            if case.values.get("view"):
                figures["view_ns"] = _view_ns(running, keys)
            if away_s is not None:
                figures["image_ns"], held = _timed(images, running, keys - 1, None)
                _check(held, truth)
                last = keys - 1
                began = time.monotonic()
                while (passed := time.monotonic() - began) < away_s:
                    due = keys + int(passed * UPDATES_PER_S)
                    some = ((number, number * STEP % keys) for number in range(last + 1, due + 1))
                    sock.sendall(_updates(images, truth, some))
                    last = due
                    time.sleep(PACE_S)
                wait_until_read(running)
                figures["again_ns"], again = _timed(images, running, last, keys - 1)
                figures["changed_keys"] = sum(held[key] != payload for key, payload in truth.items())
                figures["again_keys"] = len(again)
                _check(held | again, truth)
        running.check()
        return figures | {"peak_bytes": running.process.peak_bytes()}


def _updates(images: Images, truth: dict[str, bytes], some: Iterable[tuple[int, int]]) -> bytes:
    frames = []
    for number, key in some:
        name, payload = f"k{key:07d}", keyed_payload(number, PAYLOAD_BYTES)
        truth[name] = payload
        frames.append(images.publication(name, payload))
    return b"".join(frames)


def _timed(images: Images, running: Running, last: int, since: int | None) -> tuple[int, dict[str, bytes]]:
    began = time.perf_counter_ns()
    image = images.image(running.port, last, since)
    return time.perf_counter_ns() - began, image


def _check(image: dict[str, bytes], truth: dict[str, bytes]) -> None:
    if image != truth:
        wrong = sum(image.get(key) != payload for key, payload in truth.items())
        raise PeerFailed(f"the image is wrong in {wrong} of {len(truth)} keys")


def _view_ns(running: Running, keys: int) -> int:
    """Returns how long the client's own view takes until it has all."""
    began = time.perf_counter_ns()
    try:
        with View.open(f"mqtt://{HOST}:{running.port}", "image/#") as view:
            took = time.perf_counter_ns() - began
            if len(view) != keys:
                raise PeerFailed(f"a view of {len(view)} keys of {keys}")
    except ViewError as error:
        raise PeerFailed(str(error)) from None
    return took
