"""The folder of an archived topic: whatever is interrupted, every record of the batches that are in is there once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headway.pipeline.archive import (
    PARTS,
    STEPS,
    File,
    Folder,
    Written,
    compact,
    folders_of,
    groups,
    open_folder,
    write_parts,
)
from headway.store.records import SCHEMA

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SAID = {"content_type": None, "response_topic": None, "correlation_data": None, "user": [], "qos": 1, "retain": False}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return open_folder(tmp_path, "t/#")


def records(first: int, stop: int, hours: float = 0.0) -> pa.RecordBatch:
    """One a minute from noon on, in ``hours``."""
    rows = [
        {
            "offset": offset, "timestamp": NOON + timedelta(hours=hours, minutes=offset - first), "topic": "t/a",
            "key": None, "properties": SAID, "payload": b"%d" % offset,
        } for offset in range(first, stop)
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def write(folder: Folder, *batches: pa.RecordBatch) -> Written:
    return write_parts(folder, "query", iter(batches))


def put_in(folder: Folder, batch: int, *written: Written, query: str = "query") -> None:
    parts = {part: name for one in written for part, name in one.parts.items()}
    folder.put_in(query, batch, parts, max(one.end for one in written))


def offsets(folder: Folder) -> list[int]:
    """As anybody reads them who knows nothing of us."""
    found = pq.read_table(folder.path, columns=["offset"]).column("offset").to_pylist() if folder.files() else []
    return sorted(found)


def left_over(folder: Folder) -> list[str]:
    return [path.name for path in (folder.path / PARTS).iterdir()]


def test_records_go_to_the_day_they_are_of(folder: Folder) -> None:
    midnight = [records(1, 11, hours=11.9), records(11, 21, hours=12.1)]
    put_in(folder, 0, write(folder, *midnight), write(folder, records(21, 31)))
    assert [(file.date, file.first, file.last) for file in folder.files()] == [
        ("2026-03-01", 1, 6), ("2026-03-02", 7, 20), ("2026-03-01", 21, 30),
    ]  # fmt: skip
    assert folder.end() == 31
    table = pq.read_table(folder.path)
    assert table.drop_columns(["date"]).sort_by("offset").to_pylist() == pa.Table.from_batches(
        [*midnight, records(21, 31)]
    ).to_pylist()
    assert set(table.column("date").to_pylist()) == {"2026-03-01", "2026-03-02"}


def test_a_batch_that_is_in_is_not_put_in_again(folder: Folder) -> None:
    """Spark runs it again, with other tasks, because it did not get to write down that it was done."""
    put_in(folder, 3, write(folder, records(1, 11)), write(folder, records(11, 21)))
    put_in(folder, 3, write(folder, records(1, 21)))
    put_in(folder, 4, write(folder, records(21, 31)))
    assert offsets(folder) == list(range(1, 31))
    assert left_over(folder) == []


def test_another_query_begins_to_count_anew(folder: Folder) -> None:
    """Where somebody has deleted the checkpoint: the numbers of its batches say nothing of the ones before."""
    for batch in range(3):
        put_in(folder, batch, write(folder, records(10 * batch + 1, 10 * batch + 11)))
    for batch in range(3):
        first = 10 * batch + folder.end() - 10 * batch
        put_in(folder, batch, write(folder, records(first, first + 10)), query="other")
    assert offsets(folder) == list(range(1, 61))


class Interrupted(BaseException):
    pass


@pytest.fixture(params=range(8))
def interrupt(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The process ends at the n-th thing it does to a file; ``[1]`` if it came to that."""
    left, came = request.param, [0]
    replace, unlink = os.replace, Path.unlink

    def gone() -> None:
        nonlocal left
        left -= 1
        if left == -1:
            came[0] = 1
            raise Interrupted

    monkeypatch.setattr(os, "replace", lambda old, new: (gone(), replace(old, new)))
    monkeypatch.setattr(Path, "unlink", lambda path, missing_ok=False: (gone(), unlink(path, missing_ok)))
    yield came
    monkeypatch.undo()


def test_interrupted_while_a_batch_is_put_in(folder: Folder, interrupt: list[int]) -> None:
    """Spark runs it again; or it was in, as somebody finds who opens the folder."""
    written = [write(folder, records(1, 11)), write(folder, records(11, 21, hours=12)), write(folder, records(21, 31))]
    try:
        put_in(folder, 0, *written)
    except Interrupted:
        again = open_folder(folder.path.parent, "t/#")
        again.mend()
        assert left_over(again) == []
        assert offsets(again) in ([], list(range(1, 31)))
        put_in(again, 0, write(again, records(1, 16)), write(again, records(16, 31)))
    assert offsets(folder) == list(range(1, 31))
    assert folder.end() == 31
    assert left_over(folder) == []


def test_interrupted_while_files_are_merged(folder: Folder, interrupt: list[int]) -> None:
    try:
        for batch in range(3):
            put_in(folder, batch, write(folder, records(10 * batch + 1, 10 * batch + 11)))
        compact(folder, few=1)
    except Interrupted:
        again = open_folder(folder.path.parent, "t/#")
        again.mend()
        found = offsets(again)
        assert found == list(range(1, len(found) + 1))
        assert left_over(again) == []
        assert not list((again.path / STEPS).glob("merge-*"))
    else:
        assert len(folder.files()) == 1


def test_merged_files_have_the_same_records_in_order(folder: Folder) -> None:
    for batch in range(10):
        put_in(folder, batch, write(folder, records(10 * batch + 1, 10 * batch + 11)))
    before = pq.read_table(folder.path).sort_by("offset")
    assert compact(folder) == 9
    (file,) = folder.files()
    assert (file.first, file.last) == (1, 100)
    assert pq.read_table(folder.path) == before
    assert compact(folder) == 0


def files(*sizes: int, date: str = "2026-03-01") -> list[File]:
    return [File(date, at, at, size) for at, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "merged"),
    [
        ((1, 1, 1), []),  # few
        ((1, 1, 1, 1), [(0, 3)]),
        ((9, 1, 1, 1, 1), [(0, 1)]),
        ((10, 1, 1, 1, 1), [(1, 4)]),  # the first is large enough as it is
        ((1, 1, 10, 1, 1, 1, 1), [(3, 6)]),  # not across a large one
        ((6, 6, 6, 6), [(0, 1), (2, 3)]),
    ],
)
def test_which_files_become_one(sizes: tuple[int, ...], merged: list[tuple[int, int]]) -> None:
    found = groups(files(*sizes), small_bytes=10, few=3)
    assert [(group[0].first, group[-1].first) for group in found] == merged


def test_days_are_not_mixed() -> None:
    both = [*files(6, 6), *files(6, 6, date="2026-03-02")]
    assert [[file.date for file in group] for group in groups(both, 10, 3)] == [["2026-03-01"] * 2, ["2026-03-02"] * 2]


def test_a_task_that_fails_leaves_nothing(folder: Folder) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield records(1, 200_000)
        raise OSError("the broker is away")

    with pytest.raises(OSError, match="away"):
        write(folder, *broken())
    with pytest.raises(OSError, match="away"):
        write_parts(folder, "query", broken())
    assert left_over(folder) == []


def test_topics_do_not_get_into_each_others_way(tmp_path: Path) -> None:
    filters = ["t/#", "T/+", "#", "a b/ä", "t"]
    made = {filter: open_folder(tmp_path, filter).path for filter in filters}
    assert len(set(made.values())) == len(filters)
    assert made["t/#"].name == "t"
    assert {filter: open_folder(tmp_path, filter).path for filter in reversed(filters)} == made
    assert {folder.filter for folder in folders_of(tmp_path)} == set(filters)
