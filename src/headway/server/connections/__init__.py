"""Clients' sockets: how they are read and written, how they end, and the record of their ends. No protocol."""

from headway.server.connections.connection import OUT_BYTES_MAX, Connection, Peer
from headway.server.connections.connections import Connections, HoldingReplies, PendingReplies
from headway.server.connections.ends import FLOOD_BYTES, End, Ends, Floods
from headway.server.connections.linger import END_WORK, Endings, Hangups, Lingering
from headway.server.connections.proxied import Announcement, Networks, client_of, is_trusted, shown
from headway.server.connections.reassembly import PartialPacket, Reassembly
from headway.server.connections.socket_outlet import ended
from headway.server.connections.turn_budget import (
    BUDGET_WORK,
    GREETING_WORK,
    LOGIN_WORK,
    SUBSCRIBE_WORK,
    TURN_WORK,
    Steps,
    TurnBudget,
    TurnWork,
)

__all__ = [
    "Announcement", "BUDGET_WORK", "client_of", "Connection", "Connections", "End", "END_WORK", "ended", "Endings",
    "Ends", "FLOOD_BYTES", "Floods", "GREETING_WORK", "Hangups", "HoldingReplies", "is_trusted", "Lingering",
    "LOGIN_WORK", "Networks", "OUT_BYTES_MAX", "PartialPacket", "Peer", "PendingReplies", "Reassembly", "shown",
    "Steps", "SUBSCRIBE_WORK", "TURN_WORK", "TurnBudget", "TurnWork",
]
