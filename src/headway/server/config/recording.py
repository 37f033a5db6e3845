"""``headway serve --record FILTER``: a config that keeps the records of topics, without writing one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headway.core.base import ConfigError
from headway.core.message import BadTopic, validate_filter
from headway.store.toml_text import quoted

KEEP = "1d"


def recording_text(text: str, filters: Sequence[str], folder: Path) -> str:
    """Returns the config ``text`` with a journal in ``folder`` and a recorded topic for each filter. Raises
    ConfigError."""
    for filter in filters:
        try:
            validate_filter(filter)
        except BadTopic as error:
            raise ConfigError(f"--record {filter}: {error}") from None
    topics = [f"[[topic]]\nfilter = {quoted(filter)}\nkeep = {quoted(KEEP)}\n" for filter in filters]
    return "\n".join([text, f"[journal]\npath = {quoted(str(folder))}\n", *topics])
