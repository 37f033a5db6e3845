"""One Spark session for all of these tests: it takes seconds to start, and a process has only one at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from headway.core.errors import ConfigError
from headway.pipeline.session import check_java, open_session

# Every JVM of these tests lives for seconds: half of their time would go into compiling what is hardly run.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture(scope="session", autouse=True)
def java() -> None:
    """Without Java these tests fail and say what to do; they are never silently left out."""
    try:
        check_java()
    except ConfigError as error:
        pytest.fail(str(error) + (" (CI never skips what needs Spark)" if os.environ.get("CI") else ""), pytrace=False)


@pytest.fixture(scope="session")
def spark(java: None) -> Iterator[SparkSession]:
    settings = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}
    with open_session("tests", master="local[2]", conf=settings) as session:
        yield session
