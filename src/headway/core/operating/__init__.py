"""Moves of cursors that a person asks for."""

from headway.core.operating.operating import PATIENCE_MAX_S, Operating

__all__ = [
    "Operating", "PATIENCE_MAX_S",
]
