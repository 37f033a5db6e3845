"""What takes seconds, once for all of these tests: a Spark session, of which a process has only one at a time, and a
broker that has deleted some of what it recorded."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.interop.conftest import start as start
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.records import recording
from tests.interop.waiting import until
from tests.pipeline.classes import java_options
from tests.pipeline.cluster import Cluster, start_cluster
from tests.pipeline.pages import ABOUT, AT, Page, table

from headway.core.base.errors import ConfigError
from headway.pipeline.java import check_java
from headway.pipeline.report.lab import lab_report
from headway.pipeline.session import open_session

STARTUP = Path(__file__).with_name("startup")
"""What is in it is read by every Python process of these tests before anything else."""


@pytest.fixture(scope="session", autouse=True)
def java() -> None:
    """Without Java these tests fail and say what to do; they are never silently left out."""
    try:
        check_java()
    except ConfigError as error:
        pytest.fail(str(error) + (" (CI never skips what needs Spark)" if os.environ.get("CI") else ""), pytrace=False)
    os.environ.setdefault("JDK_JAVA_OPTIONS", java_options())
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(STARTUP), os.environ.get("PYTHONPATH"))))


@pytest.fixture(scope="session")
def spark(java: None) -> Iterator[SparkSession]:
    settings = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}
    with open_session("tests", master="local[2]", conf=settings) as session:
        yield session


@pytest.fixture(scope="session")
def trimmed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that got ten records of 60 kB in t/a and in u/a, of which it still has the last ones, and ten small ones
    in u/b, of which it has all. Nobody publishes any more."""
    folder = tmp_path_factory.mktemp("trimmed")
    kept = "".join(f'[[topic]]\nfilter = "{one}"\nkeep = "{keep}"\n'
                   for one, keep in (("t/#", "200kB"), ("u/a", "200kB"), ("u/#", "1d")))  # fmt: skip
    process = BrokerProcess(folder, recording(folder / "journal", kept, segment="100kB"))
    with Raw(process.ports["mqtt"], "publisher") as publisher:
        for number in range(10):
            publisher.published("t/a", b"%-60000d" % number)
        for number in range(10):
            publisher.published("u/a", b"%-60000d" % number)
            publisher.published("u/b", b"%d" % number)
    until(lambda: all(one["bytes"] <= 200_000 for one in process.get("/v1/topics")["topics"]), what="segments go")
    yield process
    process.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with start_cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def lab(tmp_path: Path) -> Callable[..., Page]:
    def make(candidates: list[dict[str, Any]], outcomes: list[dict[str, Any]] | None = None, **about: Any) -> Page:
        curve = [
            {"candidate": row["candidate"], "time": AT + dt.timedelta(seconds=s), "memory_bytes": s * 1000}
            for row in candidates for s in range(5)
        ]  # fmt: skip
        tables = table("candidates", *candidates), table("outcomes", *outcomes or []), table("curve", *curve)
        return Page(lab_report(*tables, ABOUT | about, tmp_path / "lab.html"))

    return make
