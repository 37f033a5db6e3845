"""Telemetry: samples, events and statistics of the broker; records that are followed for their traces."""

from headway.core.telemetry import stats
from headway.core.telemetry.observer import LakeObserver
from headway.core.telemetry.recorder import ColumnData, Recorder, RowBatch, TextColumn
from headway.core.telemetry.tables import CONSUMER_SAMPLES, TABLES, VERSION, Kind
from headway.core.telemetry.traced_publishing import TracedPublishing

__all__ = [
    "ColumnData", "CONSUMER_SAMPLES", "Kind", "LakeObserver", "Recorder", "RowBatch", "stats", "TABLES", "TextColumn",
    "TracedPublishing", "VERSION",
]
