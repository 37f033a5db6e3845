"""The interface for plug-ins: the types that meters, conditions and actions need, and nothing of the broker's inside
(docs/PLUGINS.md)."""

from headway.core.policy import Look, Move, PluggedAction, PluggedCondition, PluggedMeter, Sample, move, tell

__all__ = ["Look", "Move", "PluggedAction", "PluggedCondition", "PluggedMeter", "Sample", "move", "tell"]
