"""Telemetry: samples, events and statistics of the broker; records that are followed for their traces."""

from headway.core.telemetry import stats
from headway.core.telemetry.observer import ColumnData, LakeObserver, Recorder, RowBatch, TextColumn, TracedPublishing
from headway.core.telemetry.stats import CONSUMER_SAMPLES, TABLES, VERSION, Kind

__all__ = [
    "ColumnData", "CONSUMER_SAMPLES", "Kind", "LakeObserver", "Recorder", "RowBatch", "stats", "TABLES", "TextColumn",
    "TracedPublishing", "VERSION",
]
