"""Peers: the base of every protocol's side of a connection. Each protocol has a room of its own above this."""

from headway.server.peers.base import BasePeer
from headway.server.peers.destinations import (
    binding_key_of,
    filter_of,
    name_of_topic,
    parts_of,
    topic_named,
    virtual_topic_of,
)
from headway.server.peers.named_queues import DURABLE, NamedQueues, check_alone, is_temporary
from headway.server.peers.part import PeerPart
from headway.server.peers.patience import log_patience
from headway.server.peers.publishing import (
    NO_PATCHES,
    check_copies,
    check_patience,
    check_topic,
    forget,
    merges,
    remember,
    take_merge_away,
)
from headway.server.peers.queue_arguments import MATCHES, read_alternate, read_terms
from headway.server.peers.sasl_login import GUEST, SaslLogin
from headway.server.peers.settlement import DEAR_PORTION, PORTION, Settle, settle, settle_in_steps
from headway.server.peers.states import CLOSING, OPEN, WAITING, ClientState
from headway.server.peers.transaction import NO_TRANSACTION, NoTransaction, Transaction
from headway.server.peers.undecided import Choice, Undecided

__all__ = [
    "BasePeer", "binding_key_of", "check_alone", "check_copies", "check_patience", "check_topic", "Choice",
    "ClientState", "CLOSING", "DEAR_PORTION", "DURABLE", "filter_of", "forget", "GUEST", "is_temporary", "log_patience",
    "MATCHES", "merges", "name_of_topic", "NamedQueues", "NO_PATCHES", "NO_TRANSACTION", "NoTransaction", "OPEN",
    "parts_of", "PeerPart", "PORTION", "read_alternate", "read_terms", "remember", "SaslLogin", "settle", "Settle",
    "settle_in_steps", "take_merge_away", "topic_named", "Transaction", "Undecided", "virtual_topic_of", "WAITING",
]
