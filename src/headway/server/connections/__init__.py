"""Clients' sockets: how they are read and written, how they end, and the record of their ends. No protocol."""

from headway.server.connections.byte_stream import Buffer, ByteStream, Opening, PlainStream, StreamError
from headway.server.connections.connection import Connection, Peer
from headway.server.connections.connections import Connections
from headway.server.connections.ends import End, Ends
from headway.server.connections.linger import Lingering
from headway.server.connections.logins import Logins
from headway.server.connections.peer_progress import PieceBudget
from headway.server.connections.pending_replies import PendingReplies
from headway.server.connections.reassembly import PartialPacket, Reassembly
from headway.server.connections.sockets import bound
from headway.server.connections.turn_budget import BUDGET_WORK, ITEMS_MAX, SUBSCRIBE_WORK, TURN_WORK, Steps, TurnBudget

__all__ = [
    "bound", "BUDGET_WORK", "Buffer", "ByteStream", "Connection", "Connections", "End", "Ends", "ITEMS_MAX",
    "Lingering", "Logins", "Opening", "PartialPacket", "Peer", "PendingReplies", "PieceBudget", "PlainStream",
    "Reassembly", "Steps", "StreamError", "SUBSCRIBE_WORK", "TURN_WORK", "TurnBudget",
]
