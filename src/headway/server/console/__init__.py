"""The console: a live page for operators, and what it is told."""

from headway.server.console.console import Console
from headway.server.console.consumers import kick, operator

__all__ = [
    "Console", "kick", "operator",
]
