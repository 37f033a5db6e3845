"""Meters: the measurements of one consumer, and what each is called."""

from headway.core.policy.meters.catalogue import METERS, SHARE, MeterInfo, PluggedMeter, plugged_meter, records, waiting
from headway.core.policy.meters.figures import Figures
from headway.core.policy.meters.lateness import Lateness
from headway.core.policy.meters.look import Look
from headway.core.policy.meters.meter import UNSEEN_S, Meter
from headway.core.policy.meters.sample import PAUSES, RATE_WINDOW_S, Sample

__all__ = [
    "Figures", "Lateness", "Look", "Meter", "MeterInfo", "METERS", "PAUSES", "plugged_meter", "PluggedMeter",
    "RATE_WINDOW_S", "records", "Sample", "SHARE", "UNSEEN_S", "waiting",
]
