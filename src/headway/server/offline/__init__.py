"""A journal's folder while no broker is at work on it."""

from headway.server.offline.inventory import Inventory, compact, take_inventory
from headway.server.offline.reader import StreamSummary, describe_streams, exclusive, open_recorded, settings_for

__all__ = [
    "compact", "describe_streams", "exclusive", "Inventory", "open_recorded", "settings_for", "StreamSummary",
    "take_inventory",
]
