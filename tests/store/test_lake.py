"""The lake's files: whole, by day, within bounds, and what a reader that is not ours makes of them."""

from __future__ import annotations

import datetime as dt
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from headway.core.telemetry.observer import Recorder
from headway.core.telemetry.stats import TABLES, VERSION
from headway.store import lake as lake_module
from headway.store.lake import LEFT_OVER_S, PARTIAL, Lake, new_run
from headway.store.rows import TABLE_KEY, VERSION_KEY, arrow_schema

NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
GB = 1_000_000_000
EMPTY: dict[str, Any] = {"time": 0, "text": "", "int": 0, "float": 0.0, "flag": False}


def write(lake: Lake, table: str, times: list[dt.datetime], **given: Any) -> None:
    """A row for each time."""
    recorder = Recorder()
    for time in times:
        values = {**given, "time": round(time.timestamp() * 1_000_000)}
        recorder.add(table, tuple(values.get(column.name, EMPTY[column.kind]) for column in TABLES[table].columns))
    (batch,) = recorder.take()
    lake.write(batch)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("table", TABLES)
def test_a_reader_finds_what_was_written_and_of_which_version(tmp_path: Path, table: str) -> None:
    lake = Lake(tmp_path, "run-1", GB)
    texts = {column.name: "ü €\n'\"/#+" for column in TABLES[table].columns if column.kind == "text"}
    flags = {column.name: True for column in TABLES[table].columns if column.kind == "flag"}
    numbers = {column.name: -(2**62) for column in TABLES[table].columns if column.kind == "int"}
    floats = {column.name: 0.1 for column in TABLES[table].columns if column.kind == "float"}
    write(lake, table, [NOON, NOON], **texts, **flags, **numbers, **floats)
    (path,) = files(tmp_path)
    assert path.relative_to(tmp_path).parts[:2] == (table, "date=2026-03-01")
    assert re.fullmatch(r"part-run-1-\d{6}\.parquet", path.name)
    found = pq.ParquetFile(path)
    assert found.schema_arrow.equals(arrow_schema(table), check_metadata=True)
    assert found.metadata.metadata[TABLE_KEY] == table.encode()
    assert found.metadata.metadata[VERSION_KEY] == str(VERSION).encode()
    expected = {**texts, **flags, **numbers, **floats, "time": NOON}
    assert found.read().to_pylist() == [expected, expected]


def test_rows_are_split_at_midnight_utc(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "run-1", GB)
    midnight = dt.datetime(2026, 3, 2, tzinfo=dt.UTC)
    step = dt.timedelta(microseconds=1)
    write(lake, "broker_samples", [midnight - step, midnight, midnight + dt.timedelta(days=2)])
    rows = {path.parent.name: pq.ParquetFile(path).read().column("time").to_pylist() for path in files(tmp_path)}
    assert rows == {
        "date=2026-03-01": [midnight - step],
        "date=2026-03-02": [midnight],
        "date=2026-03-04": [midnight + dt.timedelta(days=2)],
    }


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it is renamed it is where no reader looks; where it cannot be renamed nothing is left."""
    lake = Lake(tmp_path, "run-1", GB)
    replace, seen = os.replace, []

    def watched(source: Path, target: Path) -> None:
        assert not target.exists()
        assert pq.ParquetFile(source).metadata.num_rows == 1
        seen.append(source.relative_to(tmp_path).parts[0])
        replace(source, target)

    monkeypatch.setattr(lake_module.os, "replace", watched)
    write(lake, "broker_samples", [NOON])
    assert seen == [PARTIAL]

    def fails(source: Path, target: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(lake_module.os, "replace", fails)
    before = files(tmp_path)
    with pytest.raises(OSError, match="Input/output"):
        write(lake, "broker_samples", [NOON])
    assert files(tmp_path) == before
    monkeypatch.setattr(lake_module.os, "replace", replace)
    write(lake, "broker_samples", [NOON])
    assert len(files(tmp_path)) == 2
    assert lake.bytes == sum(path.stat().st_size for path in files(tmp_path))


def test_the_oldest_files_go_first_whichever_run_wrote_them(tmp_path: Path) -> None:
    other = Lake(tmp_path, "run-0", GB)
    write(other, "verdicts", [NOON - dt.timedelta(days=2)])
    write(other, "broker_samples", [NOON - dt.timedelta(days=1)])
    size = max(path.stat().st_size for path in files(tmp_path))
    limit = 4 * size
    lake = Lake(tmp_path, "run-1", limit)
    for hour in range(10):
        write(lake, "broker_samples", [NOON + dt.timedelta(hours=hour)])
        assert sum(path.stat().st_size for path in files(tmp_path)) <= limit
    assert not (tmp_path / "verdicts" / "date=2026-02-27").exists(), "an empty folder is left"
    left = [path.name for path in files(tmp_path)]
    assert left == sorted(left)[-len(left):]
    assert left[-1].endswith("-000010.parquet")
    assert 2 <= len(left) <= 4
    assert lake.bytes == sum(path.stat().st_size for path in files(tmp_path))


def test_only_what_is_long_left_half_written_is_removed(tmp_path: Path) -> None:
    Lake(tmp_path, "run-0", GB)
    old, fresh = tmp_path / PARTIAL / "a-part-run-0-1.parquet", tmp_path / PARTIAL / "a-part-run-9-1.parquet"
    for path in (old, fresh):
        path.write_bytes(b"PAR1")
    ago = path.stat().st_mtime - LEFT_OVER_S - 1
    os.utime(old, (ago, ago))
    Lake(tmp_path, "run-1", GB)
    assert files(tmp_path) == [fresh]


def test_strangers_files_are_left_alone(tmp_path: Path) -> None:
    stranger = tmp_path / "notes" / "date=2020-01-01" / "mine.parquet"
    stranger.parent.mkdir(parents=True)
    stranger.write_bytes(b"x" * 100_000)
    lake = Lake(tmp_path, "run-1", 1000)
    write(lake, "broker_samples", [NOON])
    assert stranger.exists()


def test_nothing_can_be_written_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError):
        Lake(tmp_path / "file", "run-1", GB)


def test_a_runs_name_says_when_it_began() -> None:
    assert new_run(NOON.timestamp(), "abc") == "20260301T120000Z-abc"


def test_writing_imports_no_data_frames(tmp_path: Path) -> None:
    """Half a second of imports in the middle of the broker's work would be felt by everybody."""
    code = (
        "import sys, tests.store.test_lake as t\nfrom pathlib import Path\n"
        f"t.write(t.Lake(Path({str(tmp_path)!r}), 'r', t.GB), 'consumer_samples', [t.NOON], client='c')\n"
        "print('pandas' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"
