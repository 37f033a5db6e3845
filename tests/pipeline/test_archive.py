"""The archive: what is recorded is in it once, also when the broker deleted it long ago, and is read as one with what
the broker has."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.records import ask, recording
from tests.interop.waiting import until

from headway.pipeline.archive import ArchiveFormat, Folder, compact, open_folder, update
from headway.pipeline.broker.broker_client import BrokerClient
from headway.pipeline.source.options import Options
from headway.pipeline.source.reading import ArchiveSpan, OffsetFinder, open_archived_topic

TOPICS = '[[topic]]\nfilter = "t/#"\nkey = "/n"\nkeep = "100kB"\n[[topic]]\nfilter = "other"\nkeep = "7d"\n'
BLOCK = 20


class Archived(NamedTuple):
    broker: BrokerProcess
    out: Path
    folder: Folder
    """Of t/#."""
    before: list[dict[str, Any]]
    """All records of t/# that were archived, as the broker had them."""


def publish(broker: BrokerProcess, block: int) -> list[dict[str, Any]]:
    """Of some kilobytes each, to two topics in turns; what the broker has of them."""
    first = ask(broker, "t/#", "HEAD").offset("Latest")
    with Raw(broker.ports["mqtt"], "publisher") as publisher:
        for number in range(block * BLOCK, (block + 1) * BLOCK):
            publisher.published("t/a" if number % 2 else "t/b", b'{"n": %d, "s": "%s"}' % (number, b"." * 3000))
    return ask(broker, "t/#", from_=first).table.to_pylist()


@pytest.fixture(scope="module")
def archived(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archived]:
    """Archived twice, at first beside another topic; the second time Spark ran the first batch again, as if it had been
    killed before it could write down that it was done. Then the broker deleted the oldest, and got more."""
    folder = tmp_path_factory.mktemp("archive")
    broker = BrokerProcess(folder, recording(folder / "journal", TOPICS, segment="100kB"))
    out = folder / "archive"
    spark.dataSource.register(ArchiveFormat)
    both, before = [open_folder(out, filter) for filter in ("t/#", "other")], []
    for block, folders in enumerate((both, both[:1])):
        before += publish(broker, block)
        update(spark, folders, broker.admin, out)
        for file in out.glob("_state/**/t_flow/**/commits/0"):
            file.unlink()
            (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    publish(broker, 2)
    until(lambda: ask(broker, "t/#", "HEAD").offset("Earliest") > before[0]["offset"], what="the oldest are deleted")
    yield Archived(broker, out, both[0], before)
    broker.stop()


def numbers(rows: DataFrame) -> list[int]:
    return sorted(row[0] for row in rows.selectExpr("CAST(get_json_object(string(payload), '$.n') AS INT)").collect())


@pytest.fixture
def load(spark: SparkSession, archived: Archived) -> Callable[..., DataFrame]:
    def loaded(**options: object) -> DataFrame:
        said = {"topic": "t/#", "admin": archived.broker.admin, "archive": archived.out} | options
        words = {name.rstrip("_"): str(value) for name, value in said.items()}
        return spark.read.format("headway").options(**words).load()

    return loaded


def test_every_record_is_in_the_archive_once_as_the_broker_had_it(archived: Archived, spark: SparkSession) -> None:
    """For anybody who reads Parquet."""
    found = pq.read_table(archived.folder.path).drop_columns(["date"]).sort_by("offset")
    assert found.to_pylist() == archived.before
    assert len(archived.before) == 2 * BLOCK
    assert archived.folder.end() == archived.before[-1]["offset"] + 1
    assert spark.read.parquet(str(archived.folder.path)).count() == 2 * BLOCK


def test_archive_and_topic_are_one(archived: Archived, load: Callable[..., DataFrame]) -> None:
    """A batch from the beginning, of one of two topics, and from places in either; without the archive it is less."""
    middle, late = archived.before[BLOCK]["offset"], archived.before[-3]["offset"]
    assert numbers(load()) == list(range(3 * BLOCK))
    assert numbers(load(topic="t/a")) == list(range(1, 3 * BLOCK, 2))
    assert numbers(load(from_=middle, to=late)) == list(range(BLOCK, 2 * BLOCK - 3))
    assert numbers(load(from_=late)) == list(range(2 * BLOCK - 3, 3 * BLOCK))
    moment = archived.before[BLOCK]["timestamp"].isoformat()
    assert numbers(load(from_=moment)) == list(range(BLOCK, 3 * BLOCK))
    assert numbers(load(to=moment)) == list(range(BLOCK))
    assert len(numbers(load(archive="").where("offset > 0"))) < 3 * BLOCK


def test_a_stream_begins_in_the_archive_and_goes_on_live(
    archived: Archived, spark: SparkSession, tmp_path: Path
) -> None:
    """In batches of a few files or offsets; what the broker has deleted is no loss."""

    def run() -> list[int]:
        source = spark.readStream.format("headway").options(topic="t/#", admin=archived.broker.admin)
        rows = source.options(archive=str(archived.out), maxBytesPerTrigger="1kB", maxOffsetsPerTrigger=15).load()
        out = rows.writeStream.format("parquet").option("path", str(tmp_path / "rows"))
        query = out.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        return numbers(spark.read.parquet(str(tmp_path / "rows")))

    assert run() == list(range(3 * BLOCK))


def test_files_that_were_merged_meanwhile_are_read_all_the_same(archived: Archived) -> None:
    """Planned before, read after."""
    options = Options("t/#", archived.broker.admin, archive=str(archived.out))
    places = OffsetFinder(BrokerClient(archived.broker.admin, 5.0), options, "t/#")
    spans = [span for span in places.split(places.start(), places.stop()) if isinstance(span, ArchiveSpan)]
    assert sum(len(span.files) for span in spans) == 2
    assert compact(archived.folder, few=1) == 1
    archive = open_archived_topic(str(archived.out), "t/#")
    assert [row for span in spans for batch in archive.read(span) for row in batch.to_pylist()] == archived.before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"archive": "/nowhere"}, "t/# is not in /nowhere; there is nothing (headway pipeline archive fills one)"),
        ({"topic": "#"}, "there is other, t/#"),
    ],
)
def test_what_is_not_in_the_archive_is_said(load: Callable[..., DataFrame], options: dict[str, str], said: str) -> None:
    with pytest.raises(PySparkException) as caught:
        load(**options).count()
    assert said in str(caught.value)


def test_the_command(archived: Archived, tmp_path: Path) -> None:
    """Into a folder of its own; and its mistakes, which need no Spark."""

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        config = str(archived.broker.config)
        command = [sys.executable, "-m", "headway", "pipeline", "archive", "-c", config, "--out", "archive", *more]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    done = run("--admin", archived.broker.admin, "t/#")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("t/#: all before offset ")
    assert len(pq.read_table(tmp_path / "archive" / "t")) >= BLOCK
    assert "the config does not say where the broker's admin API is: --admin http://HOST:PORT" in run().stderr
    assert "t/a is not what a [[topic]] with keep says: t/#, other; it is a part of t/#" in run("t/a").stderr
