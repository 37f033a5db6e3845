"""Everything that a client may ask for, and its return after a crash."""

from headway.core.clients.durability import (
    DurableMetadata,
    DurableQueueTerms,
    Folding,
    RecoveredChange,
    RecoveredPosition,
    SessionTerms,
    SubscriptionTerms,
    WriterBatch,
)
from headway.core.clients.publishers import PROTOCOL, Intake, Origin, WriterOutlet, Writers
from headway.core.clients.queues import (
    Queues,
    check_binding,
    check_exchange,
    check_known,
    check_known_exchange,
    check_queue,
    is_own,
    may_know_exchange,
    published_to,
    queue_object,
)
from headway.core.clients.restoring import Odd, Restoring
from headway.core.clients.revoking import Revoking, RightsOf
from headway.core.clients.sessions import Admission, Ending
from headway.core.clients.subscriptions import POLLS_PROTOCOL, Polls, Starts, Subscribing

__all__ = [
    "Admission", "check_binding", "check_exchange", "check_known", "check_known_exchange", "check_queue",
    "DurableMetadata", "DurableQueueTerms", "Ending", "Folding", "Intake", "is_own", "may_know_exchange", "Odd",
    "Origin", "Polls", "POLLS_PROTOCOL", "PROTOCOL", "published_to", "queue_object", "Queues", "RecoveredChange",
    "RecoveredPosition", "Restoring", "Revoking", "RightsOf", "SessionTerms", "Starts", "Subscribing",
    "SubscriptionTerms", "WriterBatch", "WriterOutlet", "Writers",
]
