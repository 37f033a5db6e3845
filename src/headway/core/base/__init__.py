"""Words, units and small tools that every room uses."""

from headway.core.base.deferred import (
    DELIVERY_WORK,
    END_WORK,
    NO_TIMER,
    ROUNDS_WORK_MAX,
    DeferredWork,
    Timers,
    WorkSteps,
)
from headway.core.base.errors import Cause, ConfigError, HeadwayError, Mistakes, ProtocolError, Reason, Refused
from headway.core.base.states import IllegalMove, moved
from headway.core.base.tables import (
    ENTRIES_MAX,
    NAMES_MAX,
    PER_NAME_MAX,
    History,
    PacketIds,
    Ranking,
    RecentCache,
    consecutive,
)
from headway.core.base.units import (
    Names,
    format_count,
    format_duration,
    format_rate,
    format_share,
    format_size,
    parse_count,
    parse_duration,
    parse_number,
    parse_rate,
    parse_share,
    parse_size,
    unknown,
)

__all__ = [
    "Cause", "ConfigError", "consecutive", "DeferredWork", "DELIVERY_WORK", "END_WORK", "ENTRIES_MAX", "format_count",
    "format_duration", "format_rate", "format_share", "format_size", "HeadwayError", "History", "IllegalMove",
    "Mistakes", "moved", "Names", "NAMES_MAX", "NO_TIMER", "PacketIds", "parse_count", "parse_duration",
    "parse_number", "parse_rate", "parse_share", "parse_size", "PER_NAME_MAX", "ProtocolError", "Ranking", "Reason",
    "RecentCache", "Refused", "ROUNDS_WORK_MAX", "Timers", "unknown", "WorkSteps",
]
