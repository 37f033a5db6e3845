"""Clients' sockets: accepted, read in shares, told to go, and their ends on record. No protocol."""

from headway.server.connections.answers import Answers
from headway.server.connections.connection import Connection, Peer
from headway.server.connections.connections import Connections
from headway.server.connections.ends import Ends
from headway.server.connections.farewell import Farewells, Words
from headway.server.connections.logins import Logins
from headway.server.connections.parts import Part, Parts
from headway.server.connections.share import ITEMS_MAX, SHARE_WORK, SUBSCRIBE_WORK, TURN_WORK, Share, Steps
from headway.server.connections.sockets import bound

__all__ = [
    "Answers", "bound", "Connection", "Connections", "Ends", "Farewells", "ITEMS_MAX", "Logins", "Part", "Parts",
    "Peer", "Share", "SHARE_WORK", "Steps", "SUBSCRIBE_WORK", "TURN_WORK", "Words",
]
