"""The classes of Spark, loaded once for every JVM of these tests: half of what a JVM of seconds does is load them.

``java_options`` gives what makes a JVM begin with an archive of them (class data sharing), which the first run on a
machine makes: for half a minute a JVM does a little of everything, and writes down what it has loaded when it ends.
The archive is good for one Java and one Spark, and stays in the virtual environment that has them. Where there is none
(it cannot be written, or somebody else is making it), a JVM loads its classes one by one as ever.

Usage: python -m tests.pipeline.classes ARCHIVE
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark
from tests.java import PLAIN

from headway.pipeline import session
from headway.pipeline.java import check_java

QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""A JVM with other classes (the launcher) would say that the archive is not for it."""


def java_options() -> str:
    archive = _archive()
    if not archive.exists():
        _make(archive)
    return f"{PLAIN} {QUIET} -XX:SharedArchiveFile={archive}" if archive.exists() else PLAIN


def _archive() -> Path:
    version = subprocess.run([check_java(), "-version"], capture_output=True, text=True, check=True).stderr
    home = Path(pyspark.__file__).parent
    key = hashlib.sha256(f"{version} {home} {pyspark.__version__} {PLAIN}".encode()).hexdigest()[:16]
    return Path(sys.prefix) / f".headway-classes-{key}.jsa"


def _make(archive: Path) -> None:
    """By one process at a time; the others do without."""
    if not os.access(archive.parent, os.W_OK):
        return
    with archive.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        part = archive.with_suffix(".part")
        part.unlink(missing_ok=True)
        options = f"{PLAIN} {QUIET} -XX:ArchiveClassesAtExit={part}"
        made = subprocess.run(
            [sys.executable, "-m", "tests.pipeline.classes"], cwd=Path(__file__).parents[2], check=False,
            env={**os.environ, "JDK_JAVA_OPTIONS": options}, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        if made.returncode == 0 and part.exists():
            part.rename(archive)


def main() -> None:
    """A catalog, a table, an aggregate, rows through Python, a stream with a state."""
    session.STOP_S = 300.0  # it writes the archive before it ends
    with (
        tempfile.TemporaryDirectory() as folder,
        session.open_session("classes", master="local[1]", home=Path(folder),
                             conf={"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "1"}) as spark,
    ):  # fmt: skip
        rows = spark.range(100).selectExpr("id", "id % 7 AS k", "timestamp_seconds(id) AS at")
        rows.write.parquet(f"{folder}/rows")
        rows.mapInArrow(lambda batches: batches, rows.schema).createOrReplaceTempView("mapped")
        spark.sql("CREATE DATABASE d")
        found = spark.sql("SELECT k, count(*) AS n, row_number() OVER (ORDER BY k) AS place FROM mapped GROUP BY k")
        found.write.saveAsTable("d.t")
        spark.sql("SELECT * FROM d.t JOIN mapped USING (k)").toPandas()
        stream = spark.readStream.schema(rows.schema).parquet(f"{folder}/rows").withWatermark("at", "1 second")
        counted = stream.dropDuplicates(["id", "at"]).writeStream.format("parquet").option("path", f"{folder}/out")
        counted = counted.option("checkpointLocation", f"{folder}/checkpoint")
        counted.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
