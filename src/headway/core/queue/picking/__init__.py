"""Picking: the records of a queue for members with selectors, and for the owners of message groups."""

from headway.core.queue.picking.picker import Picker
from headway.core.queue.picking.picking import Picking

__all__ = [
    "Picker", "Picking",
]
