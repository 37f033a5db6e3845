"""Files of results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headway.core.base import ConfigError
from headway.store.atomic_write import atomic_write


@contextmanager
def output(path: Path) -> Iterator[Path]:
    """Gives a place to write to; ``path`` is there whole afterwards. Raises ConfigError where that cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as partial:
            yield partial
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from None
