"""The broker on the event loop: its clock, its effects on the outside, its telemetry, its history, its dead letters."""

from headway.server.engine.engine import Engine
from headway.server.engine.history import HistoryWriter
from headway.server.engine.telemetry import Readiness, Stage, Telemetry

__all__ = [
    "Engine", "HistoryWriter", "Readiness", "Stage", "Telemetry",
]
