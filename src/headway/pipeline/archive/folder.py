"""The folder of one archived topic: plain Parquet files by date, and which of them count.

    TOPIC/date=2026-11-22/00000000000000000001-00000000000000050000.parquet    the records of these offsets and this day
    TOPIC/_topic.json     the filter, so that nobody archives another topic here
    TOPIC/_steps/         what has been done, a file each; written before it is done
    TOPIC/_parts/         what is being written

Rules:
- A step says which part becomes which file, and which files go. It is on disk before the first of them is touched, and
  is carried out again when somebody opens the folder: all of it, whatever was interrupted. So every record of the
  batches that are in is in one file, once; somebody who reads while a step is carried out may see it before or after.
- A batch that is in is not put in again.
- Files are named by the offsets of their first and last record; those of one topic and day do not overlap.
- Whatever begins with ``_`` is hidden from Spark, pyarrow and others that read folders of Parquet.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from headway.core.base import ConfigError
from headway.core.message import table_name
from headway.store.atomic_write import atomic_write
from headway.store.journal import REAL

PARTS, STEPS, TOPIC = "_parts", "_steps", "_topic.json"
_FILE = re.compile(r"date=(\d{4}-\d\d-\d\d)/(\d{20})-(\d{20})\.parquet")


class File(NamedTuple):
    """A Parquet file of a topic's folder; ``first`` and ``last`` are offsets."""

    date: str
    first: int
    last: int
    bytes: int

    @property
    def name(self) -> str:
        """The file's name within the topic's folder."""
        return file_name(self.date, self.first, self.last)


def file_name(date: str, first: int, last: int) -> str:
    return f"date={date}/{first:020d}-{last:020d}.parquet"


class Folder:
    def __init__(self, path: Path, filter: str) -> None:
        self.path = path
        self.filter = filter

    def make(self) -> None:
        """Raises ConfigError."""
        try:
            for name in (PARTS, STEPS):
                (self.path / name).mkdir(parents=True, exist_ok=True)
            if not (self.path / TOPIC).exists():
                _write(self.path / TOPIC, {"filter": self.filter})
        except OSError as error:
            raise ConfigError(f"{self.path}: {(error.strerror or str(error)).lower()}") from error

    # -- what there is ----------------------------------------------------------------------------------------------

    def files(self) -> list[File]:
        """Returns the files in the order of their offsets."""
        found = []
        for path in self.path.glob("date=*/*.parquet"):
            match = _FILE.fullmatch(path.relative_to(self.path).as_posix())
            if match:
                found.append(File(match[1], int(match[2]), int(match[3]), path.stat().st_size))
        return sorted(found, key=lambda file: (file.first, file.last))

    def end(self) -> int:
        """Returns the offset before which all is archived; 0: nothing is."""
        return max((int(step.get("end") or 0) for step in self._steps()), default=0)

    # -- what is done -----------------------------------------------------------------------------------------------

    def part(self) -> Path:
        """Returns a new part to write to, which a step will put in its place."""
        return self.path / PARTS / f"{os.urandom(16).hex()}.parquet"

    def put_in(self, query: str, batch: int, parts: Mapping[str, str], end: int) -> None:
        """Puts in the records of a query's batch, up to ``end``: names of parts, and of the files that they become. Of
        a batch that is in, the parts are thrown away."""
        step = self.path / STEPS / f"batch-{query}-{batch:010d}.json"
        if not step.exists():
            _write(step, {"end": end, "new": parts, "gone": []})
        self._carry_out(_read(step))
        self.throw_away(parts)
        for other in (self.path / STEPS).glob("batch-*.json"):  # carried out, and Spark will not come to it again
            if other != step:
                other.unlink()

    def replace(self, part: str, name: str, gone: Iterable[str]) -> None:
        """Puts one file in the place of these, which have the same records."""
        step = self.path / STEPS / f"merge-{part}.json"
        _write(step, {"new": {part: name}, "gone": [one for one in gone if one != name]})
        self._carry_out(_read(step))
        step.unlink()

    def throw_away(self, parts: Iterable[str]) -> None:
        for part in parts:
            (self.path / PARTS / part).unlink(missing_ok=True)

    def mend(self) -> None:
        """Carries out interrupted steps, and removes parts that nobody will put in. Only one process may do it."""
        for step in self._steps():
            self._carry_out(step)
        for merge in (self.path / STEPS).glob("merge-*.json"):
            merge.unlink()
        self.throw_away(path.name for path in list((self.path / PARTS).iterdir()))

    def _carry_out(self, step: dict[str, Any]) -> None:
        for part, name in step["new"].items():
            there, to = self.path / PARTS / part, self.path / name
            if there.exists():
                to.parent.mkdir(exist_ok=True)
                os.replace(there, to)
        for name in step["gone"]:
            (self.path / name).unlink(missing_ok=True)
        for folder in {(self.path / name).parent for name in step["new"].values()}:
            if folder.is_dir():
                REAL.sync_folder(folder)

    def _steps(self) -> Iterator[dict[str, Any]]:
        for path in sorted((self.path / STEPS).glob("*.json")):
            yield _read(path)


def open_folder(out: Path, filter: str) -> Folder:
    """Opens the topic's folder in the archive ``out``, or makes it: named as SQL calls the topic, unless that is taken.
    Raises ConfigError."""
    name = re.sub(r"[^a-z0-9_-]", "_", table_name(filter)) or "all"
    if _filter_of(out / name) not in (None, filter):
        name += f"_{zlib.crc32(filter.encode()):08x}"
    folder = Folder(out / name, filter)
    folder.make()
    return folder


def folders_of(out: Path) -> list[Folder]:
    """Returns the archived topics of this archive."""
    found = {path.parent: _filter_of(path.parent) for path in sorted(out.glob(f"*/{TOPIC}"))}
    return [Folder(path, filter) for path, filter in found.items() if filter is not None]


def _filter_of(path: Path) -> str | None:
    return _read(path / TOPIC).get("filter") if (path / TOPIC).exists() else None


def _read(path: Path) -> dict[str, Any]:
    """Raises ConfigError, OSError."""
    try:
        found = json.loads(path.read_text())
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ConfigError(f"{path} is not what an archive wrote")
    return found


def _write(path: Path, content: dict[str, Any]) -> None:
    """Writes a file that is on disk when this returns."""
    with atomic_write(path) as partial, partial.open("w") as file:
        json.dump(content, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    REAL.sync_folder(path.parent)
