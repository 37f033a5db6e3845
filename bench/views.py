"""Views: from a publish to who is subscribed to a view's topic, for several paces.

    python -m bench.views                          every = 0, "500ms" and "1s", a minute each
    python -m bench.views --every 0,2s --rate 100 --seconds 30

A view keeps the latest record of each of 1,000 keys and counts them, so each record is a row of some batch, with its
own time in it. The records come one by one, at random times. ``headway pipeline views`` runs as people run it; it, the
broker, publisher and subscriber share the machine. Needs ``headway[spark]`` and Java.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.errors import BenchError
from bench.peers.headway import Headway
from bench.peers.peer import Running, start
from headway.core.base import format_count, format_duration, parse_duration
from headway.core.message import Run
from headway.wire.mqtt.decoder import MqttDecoder
from headway.wire.mqtt.packets import Publish

KEYS = 1_000
START_S = 120.0
TOPIC, VIEW = ("bench", "views"), ("views", "latest")
CONFIG = """
[[topic]]
filter = "bench/#"
keep = "1d"
[tables.bench]
schema = "name STRING, at DOUBLE"
[views.latest]
sql = "SELECT name, max(at) AS at, count(*) AS records FROM bench GROUP BY name"
topic = "views/latest"
key = "name"
every = "EVERY"
"""


class Viewed(Headway):
    def __init__(self, every: str) -> None:
        self.config = Headway.config + Headway.durable_journal + CONFIG.replace("EVERY", every)


@contextmanager
def viewing(running: Running) -> Iterator[None]:
    """Runs ``headway pipeline views`` over its config."""
    folder = running.instance.folder
    command = [sys.executable, "-m", "headway", "pipeline", "views", "-c", str(folder / "headway.toml")]
    with (folder / "views.log").open("w") as log:
        process = subprocess.Popen([*command, "--checkpoint", str(folder / "views")], stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def delays(running: Running, rate: float, warm_s: float, seconds: float) -> list[float]:
    """Returns the delay of each record that was published after the warm-up."""
    wire, dice = running.peer.wire, random.Random(7)
    publisher, subscriber = wire.open(running.port, "publisher"), wire.open(running.port, "subscriber")
    wire.subscribe(subscriber, VIEW)
    decoder = MqttDecoder(role="client", version=4)
    decoder.feed(b"\x20\x02\0\0")  # the CONNACK, which the wire has read
    found: list[float] = []
    names = itertools.cycle(range(KEYS))
    due = time.monotonic()
    first: float | None = None
    until = due + START_S
    last_sent = 0.0
    while time.monotonic() < until:
        now = time.monotonic()
        if now >= due and (first is None or now < first + warm_s + seconds):
            payload = json.dumps({"name": f"n{next(names)}", "at": now}).encode()
            publisher.sendall(wire.publication(publisher, TOPIC, payload))
            due += dice.expovariate(rate)
            last_sent = now
        if not select.select([subscriber], [], [], max(0.0, min(due - time.monotonic(), 0.1)))[0]:
            continue
        for packet in decoder.feed(subscriber.recv(1 << 20)):
            for payload in _payloads(packet):
                at, now = json.loads(payload)["at"], time.monotonic()
                if first is None:
                    first = now
                    until = first + warm_s + seconds + START_S
                if at >= first + warm_s:
                    found.append(now - at)
                if at == last_sent and now >= first + warm_s + seconds:
                    return found
    raise BenchError(f"the view did not come to the end:\n{(running.instance.folder / 'views.log').read_text()}")


def _payloads(packet: object) -> Iterator[bytes]:
    run = packet.run if isinstance(packet, Publish) else packet
    if isinstance(run, Run):
        yield from (run.payload(index) for index in range(len(run)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", default="0s,500ms,1s", help="paces, with commas between")
    parser.add_argument("--rate", type=float, default=20.0, help="records a second, at random times")
    parser.add_argument("--warm", type=float, default=30.0, help="seconds from the first result that do not count")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", type=Path, help="write all delays here")
    args = parser.parse_args()
    rows = {}
    print(f"{args.rate:g} records a second for {args.seconds:g} s, after {args.warm:g} s that do not count")
    print(f"{'every':>8} {'records':>8} {'median':>8} {'p99':>8} {'longest':>8}")
    for every in args.every.split(","):
        parse_duration(every)
        with start(Viewed(every)) as running, viewing(running):
            rows[every] = found = sorted(delays(running, args.rate, args.warm, args.seconds))
        p99 = found[int(len(found) * 0.99)]
        shown = [format_duration(value) for value in (statistics.median(found), p99, found[-1])]
        print(f"{every:>8} {format_count(len(found)):>8} " + " ".join(f"{text:>8}" for text in shown), flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    try:
        main()
    except BenchError as error:
        sys.exit(f"bench: {error}")
