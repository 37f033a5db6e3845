"""Options of a write, ``.option(...)``, read and checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headway.client.address import default_admin_url, read_admin_url
from headway.core.base import ConfigError
from headway.core.message import validate_topic
from headway.pipeline.broker.option_values import Readers, read_flag, read_seconds, read_values
from headway.store.rows import QOS

_WRITER = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True)
class SinkOptions:
    topic: str | None = None
    """Topic of all rows; None: each row has its own."""
    admin: str = field(default_factory=default_admin_url)
    qos: int = QOS
    retain: bool = False
    timeout_s: float = 60.0
    writer: str | None = None
    """The writer of a batch, and the batch's number; a number that was written once is not written again."""
    batch: int | None = None


def read_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Raises ConfigError."""
    options = SinkOptions(**read_values(given, _READ))
    if (options.writer is None) != (options.batch is None):
        raise ConfigError("options writer and batch: one without the other means nothing")
    return options


def _number(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,18}", text) or not least <= int(text) <= most:
            raise ConfigError(f'"{text}" is no whole number from {least} to {most}')
        return int(text)

    return read


def _writer(text: str) -> str:
    if not _WRITER.fullmatch(text):
        raise ConfigError(f'"{text}" cannot be a writer\'s name: letters, digits and . _ -, at most 128')
    return text


_READ: Readers = {
    "topic": ("topic", validate_topic),
    "admin": ("admin", read_admin_url),
    "qos": ("qos", _number(0, 2)),
    "retain": ("retain", read_flag),
    "timeout": ("timeout_s", read_seconds),
    "writer": ("writer", _writer),
    "batch": ("batch", _number(0, 10**18 - 1)),
}
