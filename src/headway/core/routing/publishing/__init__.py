"""Publishing: a run gets its sequences, and goes into the logs that want it."""

from headway.core.routing.publishing.advisory import Advisories
from headway.core.routing.publishing.appending import Encoded
from headway.core.routing.publishing.expiring import Expiring
from headway.core.routing.publishing.published import FULL_QUEUE, Published, PublishedRuns, PublishedSlice
from headway.core.routing.publishing.publishing import Publishing
from headway.core.routing.publishing.receipt_replies import ReceiptReplies
from headway.core.routing.publishing.replay import Replay, seen_before

__all__ = [
    "Advisories", "Encoded", "Expiring", "FULL_QUEUE", "Published", "PublishedRuns", "PublishedSlice", "Publishing",
    "ReceiptReplies", "Replay", "seen_before",
]
