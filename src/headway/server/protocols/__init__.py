"""Which protocols there are, and what is to be known of them where none is."""

from headway.server.protocols.registry import DIALECTS, PROTOCOLS, QUEUES, peer_of

__all__ = [
    "DIALECTS", "peer_of", "PROTOCOLS", "QUEUES",
]
