"""How far clients have read, as the kernel tells: their steps, their pauses, and what lies unread on their hosts."""

from headway.server.progress.fresh_window import RoomLooks
from headway.server.progress.peer_progress import (
    BURST_BYTES,
    FINE_BYTES,
    GLANCE_BYTES,
    NEW_S,
    NO_PROGRESS,
    NO_ROOM,
    ROOM_BYTES,
    SEND_BYTES,
    SMALL_BYTES,
    STILL_S,
    TRIED_BYTES,
    Glances,
    PeerProgress,
    PieceBudget,
    Reading,
    Room,
    SmallPieces,
)
from headway.server.progress.peer_sockets import REMOTE, PeerSocket, PeerSockets
from headway.server.progress.steadiness import Steadiness
from headway.server.progress.tcp_info import TcpInfo

__all__ = [
    "BURST_BYTES", "FINE_BYTES", "GLANCE_BYTES", "Glances", "NEW_S", "NO_PROGRESS", "NO_ROOM", "PeerProgress",
    "PeerSocket", "PeerSockets", "PieceBudget", "Reading", "REMOTE", "Room", "ROOM_BYTES", "RoomLooks", "SEND_BYTES",
    "SMALL_BYTES", "SmallPieces", "Steadiness", "STILL_S", "TcpInfo", "TRIED_BYTES",
]
