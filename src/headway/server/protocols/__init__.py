"""The protocols that there are, for code that knows none of them by name."""

from headway.server.protocols.registry import DIALECTS, PROTOCOLS, QUEUES, SCHEMES, SUBPROTOCOLS, Scheme, peer_of

__all__ = [
    "DIALECTS", "peer_of", "PROTOCOLS", "QUEUES", "Scheme", "SCHEMES", "SUBPROTOCOLS",
]
