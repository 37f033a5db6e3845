"""Files that are there whole, or not at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def atomic_write(path: Path, partial: Path | None = None) -> Iterator[Path]:
    """Gives a place to write to, ``partial`` or a hidden file beside; what stands there at the end of the block is
    ``path`` from then on. When the block fails nothing is left of it, and what ``path`` was before stays."""
    if partial is None:
        partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        yield partial
        os.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise
