"""Lakes: what is wrong with one is said in one line before Spark is started; what is right is read once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.pipeline.lakes import write

from headway.core.base.errors import ConfigError
from headway.core.telemetry.stats import TABLES
from headway.pipeline.lake import check_lake, read_table
from headway.store.rows import TABLE_KEY, VERSION_KEY, arrow_schema


def complaint(lake: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        check_lake(lake)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def one_row(lake: Path, table: str = "consumer_samples") -> Path:
    (path,) = write(lake, table, [{}])
    return path


def test_what_a_lake_holds(tmp_path: Path) -> None:
    write(tmp_path, "consumer_samples", [{"time": t} for t in (5, 7)] + [{"time": 86_400 * 2}])
    write(tmp_path, "verdicts", [{"time": -3, "number": 1}])
    partial = tmp_path / "_partial" / "x.parquet"
    partial.parent.mkdir()
    partial.write_text("half")
    (tmp_path / "consumer_samples" / "date=2026-03-01" / ".x.parquet").write_text("hidden")
    info = check_lake(tmp_path)
    assert {name: tuple(table) for name, table in info.tables.items() if table.files} == {
        "consumer_samples": (2, 3), "verdicts": (1, 1),
    }  # fmt: skip
    assert (info.files, info.rows) == (3, 4)


def test_no_lake(tmp_path: Path) -> None:
    assert complaint(tmp_path / "none") == f"{tmp_path / 'none'}: there is no such folder"
    (tmp_path / "file").write_text("")
    assert complaint(tmp_path / "file") == f"{tmp_path / 'file'} is not a folder"
    assert complaint(tmp_path).startswith(f"{tmp_path} holds no telemetry: ")
    one_row(tmp_path, "broker_samples")
    assert complaint(tmp_path).startswith(f"{tmp_path} holds no telemetry: ")
    assert complaint(tmp_path / "a{b}") == f"{tmp_path / 'a{b}'}: Spark cannot use a folder with {{ }} in its path"


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_a_half_written_file(kept: float, tmp_path: Path) -> None:
    one_row(tmp_path)
    path = one_row(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * kept)])
    assert complaint(tmp_path) == f"{path} is not a whole Parquet file (half written, or something else): remove it"


def test_a_text_file_named_parquet(tmp_path: Path) -> None:
    path = one_row(tmp_path).with_name("notes.parquet")
    path.write_text("client,lag\nc,5\n" * 100)
    assert complaint(tmp_path) == f"{path} is not a whole Parquet file (half written, or something else): remove it"


def test_foreign_files(tmp_path: Path) -> None:
    path = one_row(tmp_path).with_name("foreign.parquet")
    pq.write_table(pa.table({"client": ["c"]}), path)
    assert complaint(tmp_path).startswith(f"{path} was not written by Headway: ")
    one_row(tmp_path, "verdicts").rename(path)
    assert complaint(tmp_path) == f"{path} holds verdicts and lies among consumer_samples: move it back"


@pytest.mark.parametrize(
    ("version", "told"), [("2", "is of schema 2; this Headway reads up to 1: upgrade"), ("x", "was not")]
)
def test_another_schema(version: str, told: str, tmp_path: Path) -> None:
    path = one_row(tmp_path)
    footer = {TABLE_KEY: b"consumer_samples", VERSION_KEY: version.encode()}
    pq.write_table(pq.read_table(path).replace_schema_metadata(footer), path)
    assert complaint(tmp_path).startswith(f"{path} {told}")


def test_an_older_file_may_lack_the_newest_columns(spark: SparkSession, tmp_path: Path) -> None:
    path = one_row(tmp_path)
    table = pq.read_table(path, partitioning=None)
    pq.write_table(table.drop_columns(["producer_stall_ms"]), path)
    assert check_lake(tmp_path).rows == 1
    assert read_table(spark, tmp_path, "consumer_samples").first()["producer_stall_ms"] is None  # type: ignore[index]


def test_every_column_of_every_table_comes_through(spark: SparkSession, tmp_path: Path) -> None:
    lake = tmp_path / "a lake % ü"
    for table in TABLES:
        path = one_row(lake, table)
        (found,) = read_table(spark, lake, table).toArrow().to_pylist()
        assert str(found.pop("date")) == "2026-03-01"
        (written,) = pq.read_table(path, schema=arrow_schema(table), partitioning=None).to_pylist()
        assert found == written


def test_a_table_that_was_never_written_is_empty(spark: SparkSession, tmp_path: Path) -> None:
    found = read_table(spark, tmp_path, "verdicts")
    assert found.columns == [*TABLES["verdicts"].names, "date"]
    assert found.count() == 0


def test_a_file_that_is_deleted_meanwhile_holds_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    paths = [write(tmp_path, "broker_samples", [{"seq": n}])[0] for n in range(3)]
    found = read_table(spark, tmp_path, "broker_samples").select("seq")
    paths[1].unlink()
    assert sorted(row["seq"] for row in found.collect()) == [0, 2]
