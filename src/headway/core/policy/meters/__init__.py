"""Meters: the measurements of one consumer, and what each is called."""

from headway.core.policy.meters.catalogue import (
    METERS,
    NUMBER,
    SHARE,
    MeterInfo,
    PluggedMeter,
    plugged_meter,
    read_plugged,
    records,
    waiting,
)
from headway.core.policy.meters.figures import ANY_LUMP_BYTES, Figures
from headway.core.policy.meters.holding import Holding
from headway.core.policy.meters.lateness import Lateness
from headway.core.policy.meters.look import Look
from headway.core.policy.meters.meter import UNSEEN_S, Meter
from headway.core.policy.meters.sample import AHEAD, PAUSES, RATE_WINDOW_S, Sample
from headway.core.policy.meters.usual_pause import RARE_S, USUAL_MAX_S, UsualPause

__all__ = [
    "AHEAD", "ANY_LUMP_BYTES", "Figures", "Holding", "Lateness", "Look", "Meter", "MeterInfo", "METERS", "NUMBER",
    "PAUSES", "plugged_meter", "PluggedMeter", "RARE_S", "RATE_WINDOW_S", "read_plugged", "records", "Sample", "SHARE",
    "UNSEEN_S", "USUAL_MAX_S", "UsualPause", "waiting",
]
