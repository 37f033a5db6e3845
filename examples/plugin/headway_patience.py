"""An example of a plug-in: how long a consumer will be behind, and what becomes of it by who it is."""

from collections.abc import Mapping
from typing import Any, ClassVar

from headway.plugins import Look, Move, move, tell

NEVER_S = 365 * 86_400.0


class CatchUpTime:
    """Seconds until the consumer has caught up, if it and its publishers go on as they do."""

    unit = "seconds"

    def measure(self, look: Look, now: float) -> float | None:
        sample = look.sample
        if not sample.lag_bytes:
            return 0.0
        gains = sample.drain_rate - sample.offered_rate
        return min(sample.lag_bytes / gains, NEVER_S) if gains > 0 else NEVER_S


class Guest:
    """Whether a consumer without a name lags for longer than guests may."""

    options: ClassVar[Mapping[str, Any]] = {"lag_s": 10.0}

    def holds(self, look: Look, options: Mapping[str, Any], now: float) -> bool:
        return not look.user and look.sample.lag_age > options["lag_s"]


class Trim:
    """Who has a name keeps its newest records; who has none is told to come back when there is time for it."""

    options: ClassVar[Mapping[str, Any]] = {"keep": 100}

    def act(self, look: Look, options: Mapping[str, Any], now: float) -> list[Move]:
        if look.user:
            return [move("discard", which="oldest", keep_records=options["keep"])]
        return [tell("a guest is behind", lag_records=look.sample.lag_records), move("disconnect", "you are a guest")]
