"""Everything that a client may ask for, and its return after a crash."""

from headway.core.clients.admission import Admission
from headway.core.clients.ending import Ending
from headway.core.clients.folding import Folding, Standing, Told
from headway.core.clients.keeping import Batch, Keeping, QueueKeptTerms, SessionTerms, SubscriptionTerms
from headway.core.clients.polls import POLLS_PROTOCOL, Polls
from headway.core.clients.queues import Queues
from headway.core.clients.restoring import Restoring
from headway.core.clients.subscribing import Subscribing
from headway.core.clients.writers import PROTOCOL, Handing, Origin, Writers

__all__ = [
    "Admission", "Batch", "Ending", "Folding", "Handing", "Keeping", "Origin", "Polls", "POLLS_PROTOCOL", "PROTOCOL",
    "QueueKeptTerms", "Queues", "Restoring", "SessionTerms", "Standing", "Subscribing", "SubscriptionTerms", "Told",
    "Writers",
]
