"""Publishers: what they send, and writers whose batches are published exactly once."""

from headway.core.clients.publishers.intake import Intake
from headway.core.clients.publishers.writers import PROTOCOL, Origin, WriterOutlet, Writers

__all__ = [
    "Intake", "Origin", "PROTOCOL", "WriterOutlet", "Writers",
]
