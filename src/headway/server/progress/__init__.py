"""How far clients have read, as the kernel tells: their steps, their pauses, and what lies unread on their hosts."""

from headway.server.progress.fresh_window import RoomLooks
from headway.server.progress.peer_progress import NO_PROGRESS, ROOM_BYTES, STILL_S, PeerProgress
from headway.server.progress.peer_sockets import REMOTE, PeerSocket, PeerSockets
from headway.server.progress.piece_budget import SMALL_BYTES, TRIED_BYTES, PieceBudget
from headway.server.progress.reading import GLANCE_BYTES, SEND_BYTES, Glances, Reading
from headway.server.progress.room import NO_ROOM, Room
from headway.server.progress.small_pieces import BURST_BYTES, FINE_BYTES, NEW_S, SmallPieces
from headway.server.progress.steadiness import Steadiness
from headway.server.progress.tcp_info import TcpInfo

__all__ = [
    "BURST_BYTES", "FINE_BYTES", "GLANCE_BYTES", "Glances", "NEW_S", "NO_PROGRESS", "NO_ROOM", "PeerProgress",
    "PeerSocket", "PeerSockets", "PieceBudget", "Reading", "REMOTE", "Room", "ROOM_BYTES", "RoomLooks", "SEND_BYTES",
    "SMALL_BYTES", "SmallPieces", "Steadiness", "STILL_S", "TcpInfo", "TRIED_BYTES",
]
