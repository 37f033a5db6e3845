"""Moments: points in time as people write them."""

from __future__ import annotations

from datetime import datetime, timedelta

from headway.core.base import ConfigError, parse_duration

EPOCH_MIN = 100_000_000.0


def parse_moment(text: str, now_s: float) -> float:
    """Returns seconds since 1970: of ``8h`` (so long ago), ``03:00`` (the last time that it was so late),
    ``2026-11-23 03:00`` (local, unless it says otherwise), or of seconds since 1970. Raises ConfigError."""
    word = text.strip()
    try:
        seconds = float(word)
        if EPOCH_MIN <= seconds < 1e11:
            return seconds
    except ValueError:
        pass
    try:
        return now_s - parse_duration(word)
    except ConfigError:
        pass
    try:
        return datetime.fromisoformat(word).timestamp()
    except (ValueError, OverflowError, OSError):
        pass
    try:
        at = datetime.strptime(word, "%H:%M:%S" if word.count(":") == 2 else "%H:%M").time()
    except ValueError:
        example = '"8h" (ago), "03:00", or "2026-11-23 03:00"'
        raise ConfigError(f'"{word[:60]}" is not a time such as {example}') from None
    now = datetime.fromtimestamp(now_s)
    then = now.replace(hour=at.hour, minute=at.minute, second=at.second, microsecond=0)
    return (then if then <= now else then - timedelta(days=1)).timestamp()
