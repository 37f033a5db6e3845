"""Atomic writes: a file appears whole, or not at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def atomic_write(path: Path, partial: Path | None = None) -> Iterator[Path]:
    """Yields a path to write to: ``partial``, or a hidden file beside ``path``. At the end of the block it replaces
    ``path``. If the block fails the partial file is removed, and ``path`` stays as it was."""
    if partial is None:
        partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        yield partial
        os.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise
