"""A real cluster. A worker dies in the middle of a job: the result is complete, and nothing in it is doubled."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.raw import Raw
from tests.interop.records import recording
from tests.pipeline.cluster import SPARK_S, Cluster
from tests.pipeline.cluster_job import JOBS
from tests.pipeline.lakes import START, row, write

from headway.pipeline.source.reading import SPAN_OFFSETS
from headway.store.rows import arrow_schema

SUBSCRIPTIONS, SECONDS, FILES = 240, 300, 8
"""Enough that each of the twelve tasks has twenty consumers with a lag each, so that none of them, lost with its worker
or run twice, goes unnoticed."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """72,000 samples of 240 consumers in 8 files; each consumer lags for a while at some time."""
    folder = tmp_path_factory.mktemp("lake")
    (folder / "consumer_samples" / "date=2026-03-01").mkdir(parents=True)
    plain = row("consumer_samples")
    for number in range(FILES):
        subscription, second = np.meshgrid(np.arange(number, SUBSCRIPTIONS, FILES), np.arange(SECONDS), indexing="ij")
        subscription, second = subscription.ravel(), second.ravel()
        lag = np.maximum(0, (second + 7 * subscription) % 300 - 200)
        given: dict[str, Any] = {
            "subscription": subscription, "seq": second + 1, "lag_records": lag, "lag_bytes": 100 * lag,
            "held_bytes": 50 * lag + subscription, "client": [f"c{one}" for one in subscription],
            "lag_age_ms": 100.0 * lag, "offered_records": 10 * second, "offered_bytes": 1000 * second,
            "drained_records": 10 * second - lag, "drained_bytes": 1000 * second - 100 * lag,
            "drain_rate": [900.0] * len(second), "offered_rate": [1000.0] * len(second),
            "time": second * 1_000_000 + int(START.timestamp() * 1e6),
        }  # fmt: skip
        columns = [
            pa.array(given.get(field.name, [plain[field.name]] * len(second))).cast(field.type)
            for field in arrow_schema("consumer_samples")
        ]
        table = pa.Table.from_arrays(columns, schema=arrow_schema("consumer_samples"))
        pq.write_table(table, folder / "consumer_samples" / "date=2026-03-01" / f"{number}.parquet")
    write(folder, "configs", [{"seq": 1, "memory_limit_bytes": 10**9, "disk_limit_bytes": 10**9}])
    return folder


JOB = [sys.executable, "-m", "tests.pipeline.cluster_job"]


def survive(cluster: Cluster, lake: Path, folder: Path) -> None:
    """Run all jobs, and in each of them kill a worker once a part of its tasks is done and the rest cannot be."""
    gates = {job: folder / f"{job}.gate" for job in JOBS}
    for gate in gates.values():
        os.mkfifo(gate)
    command = [*JOB, cluster.url, str(lake), str(folder)]
    errors = folder / "errors"
    with errors.open("w") as file, ExitStack() as opened:
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True)
        try:
            assert running.stdout is not None
            for job, gate in gates.items():
                workers = cluster.workers(2)
                assert running.stdout.readline() == f"{job} is halfway\n", errors.read_text()
                workers[0].kill()
                opened.callback(os.close, os.open(gate, os.O_RDWR))
            assert running.wait() == 0, errors.read_text()
        finally:
            if running.poll() is None:
                running.kill()
                running.wait()
    assert errors.read_text() == ""


def ended(command: list[str], **env: str) -> subprocess.CompletedProcess[str]:
    """What hangs is killed, and fails."""
    said = os.environ | env
    return subprocess.run(command, env=said, capture_output=True, text=True, check=False, timeout=SPARK_S)


def in_order(path: Path) -> list[dict[str, Any]]:
    return sorted(pq.read_table(path).to_pylist(), key=lambda one: [str(value) for value in one.values()])


def test_what_headway_does_survives_a_worker(cluster: Cluster, lake: Path, tmp_path: Path) -> None:
    """A measure (windows and aggregates) and the lab's replay (grouped Python), against this machine alone."""
    survive(cluster, lake, tmp_path)
    alone = tmp_path / "alone"
    alone.mkdir()
    done = ended([*JOB, "local[2]", str(lake), str(alone)])
    assert (done.returncode, done.stderr) == (0, "")
    for name in JOBS:
        found = in_order(tmp_path / f"{name}.parquet")
        assert found == in_order(alone / f"{name}.parquet")
        assert len(found) > 100


def test_the_source_is_read_where_only_what_is_sent_along_is(
    cluster: Cluster, tmp_path: Path, start: BrokerFactory
) -> None:
    """On executors whose Python has all that Headway needs, but not Headway: without ``site`` it is not installed."""
    broker = start(recording(tmp_path / "journal", '[[topic]]\nfilter = "t/#"\nkeep = "7d"\n'))
    with Raw(broker.ports["mqtt"], "publisher") as publisher:
        publisher.publish_all("t/a", [b"x" * 10] * (2 * SPAN_OFFSETS))
        publisher.published("t/a", b"last")
    cluster.workers(1)
    command = [sys.executable, "-m", "tests.pipeline.cluster_source", cluster.url, broker.admin, "t/#", str(tmp_path)]
    bare, path = tmp_path / "python", sysconfig.get_path("purelib")
    bare.write_text(f'#!/bin/sh\nPYTHONPATH="{path}:$PYTHONPATH" exec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    assert subprocess.run([bare, "-c", "import pyarrow"], env={}, check=False).returncode == 0
    assert subprocess.run([bare, "-c", "import headway"], env={}, capture_output=True, check=False).returncode == 1
    done = ended(command, PYSPARK_PYTHON=str(bare))
    assert (done.returncode, done.stderr) == (0, "")
    assert [int(count) for count in done.stdout.split()] == [2 * SPAN_OFFSETS + 1] * 2
    broker.stop()
