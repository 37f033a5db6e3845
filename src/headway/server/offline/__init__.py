"""Work on a journal's folder by programs other than its broker: inventory, compaction, reading."""

from headway.server.offline.compaction import compact
from headway.server.offline.inventory import Inventory, find_odd_entries, take_inventory
from headway.server.offline.reader import (
    StreamSummary,
    describe_streams,
    exclusive,
    open_recorded,
    settings_for,
    while_it_lasts,
)

__all__ = [
    "compact", "describe_streams", "exclusive", "find_odd_entries", "Inventory", "open_recorded", "settings_for",
    "StreamSummary", "take_inventory", "while_it_lasts",
]
