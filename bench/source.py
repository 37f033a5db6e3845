"""The Spark source: a topic's records through it, beside the same rows from Parquet.

    python -m bench.source                         1,000,000 records of 128 B, several rounds in turn
    python -m bench.source --records 200000 --rounds 5 --cores 4 --partitions 8

Two jobs: every column of every row is read and thrown away (``noop``), and the sum of the payloads' lengths (``sum``),
for which Parquet reads one column of six and the source all of them. Broker, Spark and its Python workers share the
machine. What counts are the ratios within one run. Needs ``headway[spark]`` and Java.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from bench.errors import BenchError
from bench.machine import machine, machine_line
from bench.peers.headway import Headway, admin, ask
from bench.peers.peer import Running, start
from bench.running_process import cpu_s, family
from headway.core.base import ConfigError
from headway.pipeline.session import open_session

TOPIC = ("bench", "source")
AT_ONCE = 1000
FILLED_S = 60.0
RECORDED = """
[[topic]]
filter = "bench/#"
keep = "1d"
"""
JOBS: dict[str, Callable[[DataFrame], Any]] = {
    "noop": lambda rows: rows.write.format("noop").mode("overwrite").save(),
    "sum": lambda rows: rows.selectExpr("sum(length(payload))").collect(),
}


class RecordingHeadway(Headway):
    config = Headway.config + Headway.durable_journal + RECORDED


def fill(running: Running, records: int, size: int) -> None:
    """Publishes so many, of random bytes, and waits until they are on disk."""
    wire = running.peer.wire
    sock = wire.open(running.port, "publisher")
    for at in range(0, records, AT_ONCE):
        payloads = (os.urandom(size) for _ in range(min(AT_ONCE, records - at)))
        sock.sendall(b"".join(wire.publication(sock, TOPIC, payload) for payload in payloads))
    deadline = time.monotonic() + FILLED_S
    while latest(running) <= records:
        if time.monotonic() > deadline:
            raise BenchError(f"{records} records were not on disk after {FILLED_S:g} s")
        time.sleep(0.05)
    sock.close()


def latest(running: Running) -> int:
    """Returns the next offset to come."""
    (topic,) = ask(running, "/v1/topics")["topics"]
    return int(topic["latest"])


def measured(job: Callable[[DataFrame], Any], rows: DataFrame, running: Running) -> dict[str, float]:
    """Returns the seconds that a job took, and the CPU seconds of the broker and of Spark in it."""
    before, began = spent(running), time.monotonic()
    job(rows)
    seconds = time.monotonic() - began
    return {"seconds": seconds} | {name: now - before[name] for name, now in spent(running).items()}


def spent(running: Running) -> dict[str, float]:
    """Returns CPU seconds so far of the broker, and of all else that this process has started."""
    ours = running.process.pids
    return {
        "broker_cpu_s": cpu_s(ours),
        "spark_cpu_s": cpu_s(pid for pid in family(os.getpid())[0] if pid not in ours),
    }


def rounds_of(args: argparse.Namespace, running: Running, folder: Path) -> list[dict[str, Any]]:
    """Runs some rounds that do not count, for the session to be warm, and then as many as are wanted."""
    done = []
    with open_session("bench source", master=f"local[{args.cores}]") as spark:
        source = spark.read.format("headway").option("topic", "bench/#").option("admin", admin(running))
        source = source.option("partitions", args.partitions)
        source.load().write.parquet(str(folder / "parquet"))
        for number in range(args.rounds + args.warm):
            print(f"round {number - args.warm + 1}/{args.rounds} ...", file=sys.stderr, flush=True)
            for name, job in JOBS.items():
                for of in ("source", "parquet"):
                    rows = source.load() if of == "source" else spark.read.parquet(str(folder / "parquet"))
                    done.append({"round": number - args.warm, "job": name, "of": of} | measured(job, rows, running))
    return [row for row in done if row["round"] >= 0]


def report(args: argparse.Namespace, rounds: list[dict[str, Any]]) -> None:
    """Prints medians, and the ratio to Parquet round by round."""
    print(f"{args.records:,} records of {args.bytes} B, {args.cores} cores, {args.partitions} partitions, "
          f"medians of {args.rounds} rounds")
    print(f"{'job':>5} {'of':>8} {'seconds':>8} {'records/s':>11} {'broker CPU s':>13} {'Spark CPU s':>12}  ratios")
    for name in JOBS:
        each = {of: [row for row in rounds if (row["job"], row["of"]) == (name, of)] for of in ("source", "parquet")}
        ratios = [a["seconds"] / b["seconds"] for a, b in zip(each["source"], each["parquet"], strict=True)]
        for of, found in each.items():
            middle = {key: statistics.median(row[key] for row in found) for key in found[0] if key.endswith("s")}
            said = f"{statistics.median(ratios):.2f}: " + " ".join(f"{one:.2f}" for one in ratios)
            print(f"{name:>5} {of:>8} {middle['seconds']:>8.2f} {args.records / middle['seconds']:>11,.0f} "
                  f"{middle['broker_cpu_s']:>13.2f} {middle['spark_cpu_s']:>12.2f}  {said if of == 'source' else ''}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=128, help="payload bytes")
    parser.add_argument("--cores", type=int, default=os.cpu_count(), help="of Spark's; it shares them with the broker")
    parser.add_argument("--partitions", type=int, help="of the source; as many as cores unless said")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--warm", type=int, default=4, help="rounds before those that count")
    parser.add_argument("--json", type=Path, help="write all rounds here")
    args = parser.parse_args()
    args.partitions = args.partitions or args.cores
    print(machine_line(machine()), flush=True)
    with start(RecordingHeadway()) as running, tempfile.TemporaryDirectory(prefix="bench-source-") as folder:
        fill(running, args.records, args.bytes)
        rounds = rounds_of(args, running, Path(folder))
    if args.json:
        args.json.write_text(json.dumps(rounds, indent=1))
    report(args, rounds)


if __name__ == "__main__":
    try:
        main()
    except (BenchError, ConfigError) as error:
        sys.exit(f"bench: {error}")
