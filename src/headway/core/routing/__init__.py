"""From the publisher to the logs."""

from headway.core.routing.advisory import Advisories
from headway.core.routing.bindings import KINDS, Binding, Destination, Topics, frozen
from headway.core.routing.exchange import EXCHANGE_BYTES, PREDECLARED, Exchange, Exchanges
from headway.core.routing.overdue import LETTER_WORK, TAKEN_WORK
from headway.core.routing.publishing import Encoded, Published, Publishing, Slice, Some, part_of
from headway.core.routing.registry import FORMER_PUBLISHERS_MAX, Archive, Limits, Registry, why_wait
from headway.core.routing.replay import Replay, seen_before
from headway.core.routing.router import COPIES

__all__ = [
    "Advisories", "Archive", "Binding", "COPIES", "Destination", "Encoded", "Exchange", "EXCHANGE_BYTES", "Exchanges",
    "FORMER_PUBLISHERS_MAX", "frozen", "KINDS", "LETTER_WORK", "Limits", "part_of", "PREDECLARED", "Published",
    "Publishing", "Registry", "Replay", "seen_before", "Slice", "Some", "TAKEN_WORK", "Topics", "why_wait",
]
