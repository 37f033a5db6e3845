"""Repairs a stream as its recovery scan found it, before it is written on.

Rules:
- Nothing is changed while there is a loss that was not accepted.
- Batches that no sync confirmed are written again in place, and synced. The last process may have ended after a failed
  sync; then the kernel may show clean pages that are not on disk.
"""

from __future__ import annotations

from pathlib import Path

from headway.store.journal.disk import Files, opened, read_all, write_all
from headway.store.journal.recovery.recovery_scan import RecoveryScan
from headway.store.journal.segments import READ_BYTES, Corrupt, SegmentIndex, pack_header, write_losses

UNREADABLE = ".unreadable"
"""Ends the name of a segment that was set aside."""


def repair_stream(files: Files, folder: Path, found: RecoveryScan, *, repair: bool) -> list[str]:
    """Makes the folder what the survey says is there, on disk. Returns a sentence for each thing that was cut or lost.
    Raises Corrupt, unless ``repair``; OSError."""
    if found.losses and not repair:
        loss = found.losses[0]
        raise Corrupt(loss.path, loss.offset, loss.about)
    said = [str(loss) for loss in found.losses]
    if found.losses:
        _accept(files, folder, found)
    for path in found.unfinished:
        files.remove(path)
    if found.segments:
        _finish_tail(files, found.segments[-1], found)
    if found.torn:
        said.append(str(found.torn))
    files.sync_folder(folder)
    return said


def _accept(files: Files, folder: Path, found: RecoveryScan) -> None:
    """Records the losses, so that the next start accepts them."""
    for path in found.unreadable:
        files.rename(path, path.with_name(path.name + UNREADABLE))
    for segment in found.segments:
        if segment.path in found.headless:
            with opened(files, segment.path) as fd:
                write_all(files, fd, [pack_header(segment.header)], 0)
                files.sync(fd)
    numbers = [loss.numbers for loss in found.losses if loss.numbers]
    if numbers:
        write_losses(files, folder, found.accepted + numbers)


def _finish_tail(files: Files, last: SegmentIndex, found: RecoveryScan) -> None:
    at = last.position_of(found.confirmed + 1)
    start = last.entry(at).offset if at < len(last) else last.end
    if at == 0:
        start = 0  # not even the header is known to be on disk
    with opened(files, last.path) as fd:
        if found.torn:
            files.truncate(fd, last.end)
        while start < last.end:
            data = read_all(files, fd, min(READ_BYTES, last.end - start), start)
            write_all(files, fd, [data], start)
            start += len(data)
        files.sync(fd)
