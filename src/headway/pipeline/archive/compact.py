"""Compaction: neighbouring files of one topic and day become one, until it is large enough.

Every run of the archive adds files, small ones if it runs often. A file that has reached ``SMALL_BYTES`` is left alone,
so each record is copied a few times at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import pyarrow.parquet as pq

from headway.pipeline.archive.folder import File, Folder, file_name

SMALL_BYTES = 64 * 1024 * 1024
"""Files of this size are not copied again."""
LARGE_BYTES = 256 * 1024 * 1024
"""No merged file becomes much larger than this."""
FEW = 8
"""Up to so many small files in a row are left for the next run."""


def compact(folder: Folder, *, few: int = FEW) -> int:
    """Returns how many files became fewer. Raises OSError."""
    gone = 0
    for group in groups(folder.files(), SMALL_BYTES, few):
        part = folder.part()
        first, last = group[0].first, max(file.last for file in group)
        with pq.ParquetWriter(str(part), pq.read_schema(folder.path / group[0].name), compression="zstd") as writer:
            for file in group:
                with pq.ParquetFile(folder.path / file.name) as source:
                    for batch in source.iter_batches(100_000):
                        writer.write_batch(batch)
        folder.replace(part.name, file_name(group[0].date, first, last), [file.name for file in group])
        gone += len(group) - 1
    return gone


def groups(files: list[File], small_bytes: int, few: int) -> Iterator[list[File]]:
    """Groups of files to merge: neighbours of one day, more than ``few`` of them, or enough to be large."""
    for _, of_day in groupby(sorted(files, key=lambda file: (file.date, file.first)), key=lambda file: file.date):
        waiting: list[File] = []
        for file in of_day:
            if file.bytes >= small_bytes:
                waiting = []  # what is before it is left: it is smaller than few files, and grows no more
                continue
            waiting.append(file)
            size = sum(one.bytes for one in waiting)
            if len(waiting) > 1 and size >= small_bytes:
                yield waiting
                waiting = []
        if len(waiting) > few:
            yield waiting
