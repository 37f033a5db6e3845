"""A journal's folder while no broker is at work on it."""

from headway.server.offline.folder import StreamLine, alone, described, settings_for, sources_of
from headway.server.offline.inventory import Stock, compact, stock

__all__ = [
    "alone", "compact", "described", "settings_for", "sources_of", "Stock", "stock", "StreamLine",
]
