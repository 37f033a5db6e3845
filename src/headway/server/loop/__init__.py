"""The event loop: its lateness, repeated callbacks, garbage collection, and figures of the process."""

from headway.server.loop.collector import Collector
from headway.server.loop.descriptors import descriptors_for_clients, lowest_free_descriptor, raise_file_limit
from headway.server.loop.process import called_as, memory_peak_bytes, memory_rss_bytes
from headway.server.loop.pulse import BOUNDS_S, Pulse
from headway.server.loop.repeating import Repeating

__all__ = [
    "BOUNDS_S", "called_as", "Collector", "descriptors_for_clients", "lowest_free_descriptor", "memory_peak_bytes",
    "memory_rss_bytes", "Pulse", "raise_file_limit", "Repeating",
]
