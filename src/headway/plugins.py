"""The face of plug-ins: a meter's or an action's own words, and nothing of the broker's insides (docs/PLUGINS.md)."""

from headway.core.policy import Look, Move, PluggedAction, PluggedMeter, Sample, move, tell

__all__ = ["Look", "Move", "PluggedAction", "PluggedMeter", "Sample", "move", "tell"]
