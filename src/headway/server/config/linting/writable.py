"""Paths that the broker will write to: tried beforehand, without creating anything that was not there."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from headway.server.config.settings import Settings

_UNSUPPORTED = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)
"""Answers of file systems that have no unnamed files."""


def folders(settings: Settings) -> dict[str, Path]:
    """Returns the folders that the broker will write to, by key."""
    found = {
        f"listeners.{name}.pool.disk_path" if name else "pool.disk_path": pool.disk_path
        for name, pool in settings.pools.items() if pool.disk_bytes and not pool.topic
    }  # fmt: skip
    for key, table in (("telemetry", settings.telemetry), ("journal", settings.journal), ("history", settings.history)):
        if table.enabled and table.folder not in found.values():
            found[f"{key}.path"] = table.folder
    return found


def why_not_writable(folder: Path) -> str:
    """Returns why the broker could not write to a folder; empty: it could. A folder that is not there would be made."""
    try:
        there = folder
        while not there.exists():
            if there.is_symlink():
                return f"{there} is a link to nowhere"
            there = there.parent
        if not there.is_dir():
            return f"{there} is not a folder"
        _try_folder(there)
        if there == folder:
            for path in _open_files(folder):
                os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        at = "" if error.filename in (None, str(folder)) else f"{error.filename}: "
        return f"{at}{(error.strerror or str(error)).lower()}"
    return ""


def _try_folder(folder: Path) -> None:
    """Opens a file without a name and writes a byte, which leaves nothing behind. Raises OSError."""
    if not os.access(folder, os.W_OK | os.X_OK):
        code = errno.EROFS if os.statvfs(folder).f_flag & os.ST_RDONLY else errno.EACCES
        raise OSError(code, os.strerror(code), str(folder))
    try:
        fd = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        try:
            with tempfile.TemporaryFile(dir=folder) as file:  # it is removed at once
                file.write(b"\0")
        except OSError as again:
            raise OSError(again.errno, again.strerror, str(folder)) from None
        return
    try:
        os.write(fd, b"\0")
    finally:
        os.close(fd)


def _open_files(folder: Path) -> Iterator[Path]:
    """Yields files of an earlier start that the broker would write to, or lock. Another user may own them."""
    for path in sorted(folder.iterdir()):
        if path.is_file() and (path.name == "lock" or path.suffix == ".jsonl"):
            yield path
        elif path.is_dir() and (last := sorted(path.glob("*.journal"))[-1:]):
            yield last[0]
