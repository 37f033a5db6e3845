"""The broker on the loop: the clock, what it wants done outside, its telemetry, its dead letters."""

from headway.server.engine.engine import Engine
from headway.server.engine.telemetry import Telemetry

__all__ = [
    "Engine", "Telemetry",
]
