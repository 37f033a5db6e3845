"""Job patience: a message says for how long its job may take, whoever gets it from a queue."""

from __future__ import annotations

from functools import lru_cache

from headway.core.base import ConfigError, parse_duration
from headway.core.message.record import Properties

JOB_PATIENCE = "x-headway-patience"
"""The name of the header, or of the user property."""
DURATION_CHARS_MAX = 64


def job_patience_s(properties: Properties) -> float:
    """Returns the patience that a message asks for, in seconds; 0 if it asks for none, or not in a way that can be
    understood."""
    value = properties.user_value(JOB_PATIENCE) if properties.user else None
    if value is None or len(value) > DURATION_CHARS_MAX:
        return 0.0
    try:
        return parse_patience(value)
    except ConfigError:
        return 0.0


@lru_cache(256)
def parse_patience(value: str) -> float:
    """Raises ConfigError."""
    return parse_duration(value)
