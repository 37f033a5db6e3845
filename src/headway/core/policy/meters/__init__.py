"""Meters: the measurements of one consumer, and what each is called."""

from headway.core.policy.meters.meter import (
    METERS,
    NUMBER,
    RARE_S,
    SHARE,
    UNSEEN_S,
    USUAL_MAX_S,
    Holding,
    Meter,
    MeterInfo,
    PluggedMeter,
    UsualPause,
    plugged_meter,
    read_plugged,
    records,
    waiting,
)
from headway.core.policy.meters.sample import (
    AHEAD,
    ANY_LUMP_BYTES,
    PAUSES,
    RATE_WINDOW_S,
    Figures,
    Lateness,
    Look,
    Sample,
)

__all__ = [
    "AHEAD", "ANY_LUMP_BYTES", "Figures", "Holding", "Lateness", "Look", "Meter", "MeterInfo", "METERS", "NUMBER",
    "PAUSES", "plugged_meter", "PluggedMeter", "RARE_S", "RATE_WINDOW_S", "read_plugged", "records", "Sample", "SHARE",
    "UNSEEN_S", "USUAL_MAX_S", "UsualPause", "waiting",
]
