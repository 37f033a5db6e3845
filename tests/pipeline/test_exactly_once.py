"""From topic to topic on a real cluster: a worker dies in the middle of a batch, then the driver does, then the broker;
what comes out is what went in, each record once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.interop.conftest import BrokerFactory
from tests.interop.raw import Raw
from tests.interop.records import ask, recording
from tests.interop.waiting import until
from tests.pipeline.cluster import SPARK_S, Cluster, descendants
from tests.pipeline.cluster_stream import BATCH, TASKS

RECORDS = 5 * BATCH
TOPICS = '[[topic]]\nfilter = "in/#"\nkeep = "7d"\n[[topic]]\nfilter = "out/#"\nkeep = "7d"\n'


@contextmanager
def driver(cluster: Cluster, admin: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.pipeline.cluster_stream", cluster.url, admin, str(folder)]
    with (folder / "errors").open("w+") as errors, subprocess.Popen(command, stderr=errors, text=True) as running:
        try:
            yield running
        finally:
            end(running)


def end(driver: subprocess.Popen[str]) -> None:
    """At once, with the JVM and all that it has started."""
    if driver.poll() is None:
        for pid in [driver.pid, *descendants(driver.pid)]:
            with suppress(ProcessLookupError):  # it may go with the one before
                os.kill(pid, 9)
        driver.wait()


def test_what_comes_out_is_what_went_in(cluster: Cluster, start: BrokerFactory, tmp_path: Path) -> None:
    config = recording(tmp_path / "journal", TOPICS)
    broker = start(config)
    staged = tmp_path / "journal" / "staged"
    with Raw(broker.port, "publisher") as publisher:
        for first in range(0, RECORDS, 1000):
            publisher.publish_all("in/a", [b"%d" % number for number in range(first, first + 1000)])
        publisher.published("in/a", b"%d" % RECORDS)

    def published(batches: int) -> bool:
        """The query has published so many; of the first one, offset 0 is nobody's."""
        assert running.poll() is None, (tmp_path / "errors").read_text()
        rows = broker.get("/v1/publishers")["publishers"]
        return sum(row["published_records"] for row in rows if row["client"][:6] == "spark-") >= batches * BATCH - 1

    def halfway(batches: int) -> bool:
        """All tasks of the next have handed over what they have but one, which waits at its gate."""
        return published(batches) and len(list(staged.glob("spark-*/*.arrow"))) >= TASKS - 1

    def gate(number: int) -> Path:
        path = tmp_path / f"gate-{number}"
        os.mkfifo(path)
        return path

    first, second = gate(BATCH * 3 // 2), gate(BATCH * 7 // 2)
    with driver(cluster, broker.admin, tmp_path) as running:
        workers = cluster.workers(2)
        until(lambda: halfway(1), SPARK_S, "a batch is halfway")
        workers[0].kill()
        cluster.workers(2)
        opened = os.open(first, os.O_RDWR)
        until(lambda: published(2), SPARK_S, "it is published")
        first.unlink()
        os.close(opened)
        until(lambda: halfway(3), SPARK_S, "another one is halfway")
        end(running)
    broker.kill()
    second.unlink()
    broker = start(config)
    with driver(cluster, broker.admin, tmp_path) as running:
        until(lambda: running.poll() is not None, SPARK_S, "the query has come to the end")
        assert (running.returncode, (tmp_path / "errors").read_text()) == (0, "")
    found = [int(payload) for payload in ask(broker, "out/doubled").table.column("payload").to_pylist()]
    assert (len(found), sum(found)) == (RECORDS + 1, sum(range(RECORDS + 1)) * 2)
    assert sorted(found) == [2 * number for number in range(RECORDS + 1)]
    assert list(staged.glob("*")) == []  # not even of the attempts that failed
    broker.stop()
