"""The console: a live page for operators, and what it is told."""

from headway.server.console.console import Console

__all__ = [
    "Console",
]
