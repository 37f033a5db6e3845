"""From the publisher to the logs."""

from headway.core.routing.advisory import Advisories
from headway.core.routing.bindings import KINDS, AmqTopic, Binding, Destination, frozen
from headway.core.routing.exchange import EXCHANGE_BYTES, PREDECLARED, Exchange, Exchanges
from headway.core.routing.expiring import Expiring
from headway.core.routing.overdue import DEAD_LETTER_WORK, DROPPED_WORK, REQUEUED_WORK, SORTED_WORK, Overdue
from headway.core.routing.parts import part_of
from headway.core.routing.publishing import Encoded, Published, PublishedRuns, PublishedSlice, Publishing
from headway.core.routing.receipt_replies import ReceiptReplies
from headway.core.routing.recharging import AllowanceOf, Recharging
from headway.core.routing.registry import Limits, RecordedTopics, Registry, pause_reason
from headway.core.routing.replay import Replay, seen_before
from headway.core.routing.router import COPIES, Route
from headway.core.routing.session_round import SessionRound

__all__ = [
    "Advisories", "AllowanceOf", "AmqTopic", "Binding", "COPIES", "DEAD_LETTER_WORK", "Destination", "DROPPED_WORK",
    "Encoded", "Exchange", "EXCHANGE_BYTES", "Exchanges", "Expiring", "frozen", "KINDS", "Limits", "Overdue", "part_of",
    "pause_reason", "PREDECLARED", "Published", "PublishedRuns", "PublishedSlice", "Publishing", "ReceiptReplies",
    "Recharging", "RecordedTopics", "Registry", "Replay", "REQUEUED_WORK", "Route", "seen_before",
    "SessionRound", "SORTED_WORK",
]
