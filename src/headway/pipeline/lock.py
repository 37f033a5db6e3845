"""The lock of a folder, held by one run at a time."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headway.core.base import ConfigError

LOCK = "_lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Makes the folder if it is not there, and locks it for as long as the block runs. Raises ConfigError."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("w")
    except OSError as error:
        raise ConfigError(f"{folder}: {(error.strerror or str(error)).lower()}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"{folder} is in use by another run; wait for its end") from None
        yield
