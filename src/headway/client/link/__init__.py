"""The link to a broker: one connection at a time, over TCP, TLS or WebSocket, that reads no more than its user has room
for."""

from headway.client.link.errors import LinkError
from headway.client.link.link import Link
from headway.client.link.receiver import Pairs, Receiver

__all__ = ["Link", "LinkError", "Pairs", "Receiver"]
