"""WebSocket: a byte stream for browsers. Handshake, frames, compression once for all, and the stream that carries a
protocol's bytes."""

from headway.server.websocket.deflate import SharedDeflate
from headway.server.websocket.frames import unmasking
from headway.server.websocket.handshake import (
    Refusal,
    Request,
    Rules,
    check_page,
    is_loopback,
    is_no_name,
    subprotocol,
)
from headway.server.websocket.stream import CompressedStream, WebSocketStream

__all__ = [
    "check_page", "CompressedStream", "is_loopback", "is_no_name", "Refusal", "Request", "Rules", "SharedDeflate",
    "subprotocol", "unmasking", "WebSocketStream",
]
