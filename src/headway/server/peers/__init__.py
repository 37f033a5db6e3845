"""Peers: the base of every protocol's side of a connection. Each protocol has a room of its own above this."""

from headway.server.peers.base import BasePeer
from headway.server.peers.login_side import CLOSING, GUEST, OPEN, WAITING, ClientState, PeerPart, SaslLogin
from headway.server.peers.named_queues import (
    DURABLE,
    DURABLE_QUEUES,
    MATCHES,
    NamedQueues,
    binding_key_of,
    check_alone,
    durable_queue,
    filter_of,
    is_temporary,
    name_of_topic,
    parts_of,
    read_alternate,
    read_terms,
    topic_named,
    virtual_topic_of,
)
from headway.server.peers.publishing import (
    DEAR_PORTION,
    NO_PATCHES,
    PORTION,
    Settle,
    check_copies,
    check_patience,
    check_topic,
    forget,
    log_patience,
    merges,
    remember,
    settle,
    settle_in_steps,
    take_merge_away,
)
from headway.server.peers.transaction import NO_TRANSACTION, NoTransaction, Transaction
from headway.server.peers.unconfirmed import Unconfirmed
from headway.server.peers.undecided import Choice, Undecided

__all__ = [
    "BasePeer", "binding_key_of", "check_alone", "check_copies", "check_patience", "check_topic", "Choice",
    "ClientState", "CLOSING", "DEAR_PORTION", "DURABLE", "durable_queue", "DURABLE_QUEUES", "filter_of", "forget",
    "GUEST", "is_temporary", "log_patience", "MATCHES", "merges", "name_of_topic", "NamedQueues", "NO_PATCHES",
    "NO_TRANSACTION", "NoTransaction", "OPEN", "parts_of", "PeerPart", "PORTION", "read_alternate", "read_terms",
    "remember", "SaslLogin", "settle", "Settle", "settle_in_steps", "take_merge_away", "topic_named", "Transaction",
    "Unconfirmed", "Undecided", "virtual_topic_of", "WAITING",
]
