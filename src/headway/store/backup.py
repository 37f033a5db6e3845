"""Backups: copies of a journal that are whole, of one moment, or not there.

Theory of operation. The files of a journal only grow, so a copy of it is each file up to a length, as long as no file
is removed meanwhile. The broker lists files and lengths, after a commit and with all of it on disk (``Contents``), and
removes none while it *holds* them. They are copied beside the broker, by a process of its own. Without a broker the
files are as long as they are.

Rules:
- A backup is made in a hidden folder beside its place, synced, read from end to end, and then renamed. So what is at
  the place is whole; whatever ends the copying before leaves only the hidden folder.
- ``backup.json`` is written last. It lists every file with its length, and without it nothing is restored.
- A backup is a journal's folder: a broker can also be started on a copy of it.
- The manifest of a journal at rest is copied as it is. That of a running broker goes on changing, so the copy gets one
  of its own, of the segments that are in it, and without the marks of a clean stop.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import msgspec

from headway.store.journal import (
    MANIFEST_NAME,
    REAL,
    check,
    manifest_of,
    manifest_scan,
    streams_of,
    write_file,
    write_manifest,
)
from headway.store.staged import STAGED

LIST = "backup.json"
VERSION = 1
PIECE_BYTES = 8 * 1024 * 1024
_NO_KERNEL_COPY = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF}


class BadBackup(Exception):
    """A backup that cannot be made, or that is none; the text says why."""


class HeldFile(msgspec.Struct, frozen=True):
    """A file of the journal, up to a length."""

    path: str
    """Within the journal's folder."""
    bytes: int

    def __post_init__(self) -> None:
        """Raises ValueError, which the decoder makes its own error: a list that somebody has changed must not lead out
        of the folders that are copied."""
        path = PurePosixPath(self.path)
        if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in self.path or self.bytes < 0:
            raise ValueError(f"{self.path!a} is no file within a journal's folder")


class Contents(msgspec.Struct, frozen=True):
    """The files of a backup, and of what moment they are."""

    folder: str
    """The journal's folder."""
    time_us: int
    """When it was so; microseconds since 1970."""
    release: str
    """The release of Headway that wrote it."""
    files: list[HeldFile]
    version: int = VERSION

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def contents_at_rest(folder: Path, time_us: int, release: str) -> Contents:
    """Lists a journal that no broker has open; the caller has locked it. Raises BadBackup if its manifest is missing;
    OSError."""
    streams = streams_of(folder)
    _, losses = manifest_scan(REAL, folder, streams)
    if losses:
        raise BadBackup(str(losses[0]))
    folders = [*streams, *(path for path in folder.glob(f"{STAGED}/*") if path.is_dir())]
    files = sorted(file for one in folders for file in one.iterdir() if file.is_file() and file.suffix != ".partial")
    manifest = folder / MANIFEST_NAME
    files += [manifest] if manifest.is_file() else []
    held = [HeldFile(file.relative_to(folder).as_posix(), file.stat().st_size) for file in files]
    return Contents(str(folder), time_us, release, held)


def make_backup(contents: Contents, place: Path, still_held: Callable[[], None]) -> None:
    """Makes a backup at ``place``, which must not exist. ``still_held`` is called when all is copied; it raises
    BadBackup if files may have been removed meanwhile. Raises BadBackup, OSError."""
    with _appearing(place) as made:
        for file in contents.files:
            _copy(Path(contents.folder), made, file)
        still_held()
        _finish(made, contents)


def read_backup(place: Path) -> Contents:
    """Reads what a backup consists of, and sees that it is all there. Raises BadBackup, OSError."""
    try:
        contents = msgspec.json.decode((place / LIST).read_bytes(), type=Contents)
    except FileNotFoundError:
        raise BadBackup(f"{place}: there is no {LIST}, so this is no backup, or one that was not finished") from None
    except msgspec.MsgspecError as error:
        raise BadBackup(f"{place / LIST}: cannot be read: {error}") from None
    if contents.version != VERSION:
        raise BadBackup(f"{place}: a backup of version {contents.version}; this Headway knows version {VERSION}")
    for file in contents.files:
        there = place / file.path
        if not there.is_file() or there.stat().st_size < file.bytes:
            raise BadBackup(f"{there}: is not whole; the backup was changed after it was made")
    return contents


def restore_backup(place: Path, folder: Path) -> Contents:
    """Makes a journal's folder of a backup; ``folder`` must not exist, or be empty. Raises BadBackup, OSError."""
    contents = read_backup(place)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
    with _appearing(folder) as made:
        for file in contents.files:
            _copy(place, made, file)
        _list_streams(made)
        _check(made)
    return contents


@contextmanager
def _appearing(place: Path) -> Iterator[Path]:
    """Yields a hidden folder that becomes ``place`` at the end of the block, and is removed if the block fails. It is
    locked meanwhile, so that two that are made at once do not take each other's files. Raises BadBackup, OSError."""
    made = place.with_name(f".{place.name}.partial")
    if place.exists():
        raise BadBackup(f"{place}: exists already")
    made.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise BadBackup(f"{place}: is being made by somebody else just now") from None
    try:
        for left in made.iterdir():  # of one that was killed
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        yield made
        for folder in (made, *(path for path in made.rglob("*") if path.is_dir())):
            REAL.sync_folder(folder)
        os.rename(made, place)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    finally:
        os.close(lock)
    REAL.sync_folder(place.parent)


def _finish(made: Path, contents: Contents) -> None:
    _list_streams(made)
    _check(made)
    for file in contents.files:
        if (made / file.path).stat().st_size != file.bytes:
            raise BadBackup(f"{file.path}: the copy has another length than the original")
    write_file(REAL, made / LIST, msgspec.json.format(msgspec.json.encode(contents), indent=1))


def _list_streams(made: Path) -> None:
    """Makes a manifest where none was copied. Raises OSError."""
    if not (made / MANIFEST_NAME).exists():
        write_manifest(REAL, made, manifest_of(REAL, streams_of(made)))


def _check(made: Path) -> None:
    """Reads a copy from end to end. Raises BadBackup, OSError."""
    losses = [loss for report in check(made) for loss in report.losses]
    if losses:
        raise BadBackup(f"the copy is not sound: {losses[0]}")


def _copy(source: Path, target: Path, file: HeldFile) -> None:
    """Copies a file, up to its length, to disk. Raises OSError."""
    to = target / file.path
    to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with to.open("xb") as made:
        os.fchmod(made.fileno(), 0o600)
        with (source / file.path).open("rb") as original:
            _copy_bytes(original.fileno(), made.fileno(), file.bytes)
        os.fdatasync(made.fileno())


def _copy_bytes(source: int, target: int, size: int) -> None:
    """Copies by the kernel, which shares the blocks where the file system can; else by reading and writing."""
    done, by_kernel = 0, True
    while done < size:
        wanted = min(PIECE_BYTES, size - done)
        count = 0
        if by_kernel:
            try:
                count = os.copy_file_range(source, target, wanted, done, done)
            except OSError as error:
                if error.errno not in _NO_KERNEL_COPY:
                    raise
                by_kernel = False
        if not by_kernel:
            count = os.pwrite(target, os.pread(source, wanted, done), done)
        if not count:
            return  # the file is shorter than it was
        done += count
