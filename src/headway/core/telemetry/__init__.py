"""Telemetry: samples, events and statistics of the broker."""

from headway.core.telemetry import stats
from headway.core.telemetry.observer import LakeObserver
from headway.core.telemetry.recorder import ColumnData, Recorder, RowBatch, TextColumn
from headway.core.telemetry.tables import CONSUMER_SAMPLES, TABLES, VERSION, Kind

__all__ = [
    "ColumnData", "CONSUMER_SAMPLES", "Kind", "LakeObserver", "Recorder", "RowBatch", "stats", "TABLES", "TextColumn",
    "VERSION",
]
