"""WebSocket: a byte stream for browsers. Handshake, frames, compression once for all, and the stream that carries a
protocol's bytes."""

from headway.server.websocket.compressed import CompressedStream
from headway.server.websocket.deflate import SharedDeflate
from headway.server.websocket.handshake import Rules
from headway.server.websocket.stream import WebSocketStream

__all__ = [
    "CompressedStream", "Rules", "SharedDeflate", "WebSocketStream",
]
