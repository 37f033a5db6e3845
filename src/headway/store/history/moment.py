"""Moments: points in time as people write them."""

from __future__ import annotations

from datetime import datetime, time, timedelta

from headway.core.base import ConfigError, parse_duration

EPOCH_MIN = 100_000_000.0


def parse_moment(text: str, now_s: float, since: str | None = None) -> float:
    """Returns seconds since 1970: of ``8h`` (so long ago), ``03:00`` (the last time that it was so late),
    ``2026-11-23 03:00`` (local, unless it says otherwise), or of seconds since 1970. ``since``: the moment is the end
    of a span that begins then; a time of day is the first one after a time of day, and else that of today, which may
    be still to come. Raises ConfigError."""
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
    at = _time_of_day(word)
    if at is None:
        example = '"8h" (ago), "03:00", or "2026-11-23 03:00"'
        raise ConfigError(f'"{word[:60]}" is not a time such as {example}')
    now = datetime.fromtimestamp(now_s)
    then = datetime.combine(now, at)
    if since is None:
        return (then if then <= now else then - timedelta(days=1)).timestamp()
    if _time_of_day(since.strip()) is None:
        return then.timestamp()
    began = datetime.fromtimestamp(parse_moment(since, now_s))
    then = datetime.combine(began, at)
    return (then if then > began else then + timedelta(days=1)).timestamp()


def _time_of_day(word: str) -> time | None:
    try:
        return datetime.strptime(word, "%H:%M:%S" if word.count(":") == 2 else "%H:%M").time()
    except ValueError:
        return None
