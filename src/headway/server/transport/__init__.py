"""Byte streams between connections and their kernel sockets, plain and with TLS."""

from headway.server.transport.byte_stream import (
    NO_FILES_LEFT,
    Acceptor,
    AcceptShare,
    Buffer,
    ByteStream,
    Opening,
    PlainStream,
    StreamError,
    bound,
    first_bytes,
    lost,
    with_options,
)
from headway.server.transport.tls_handshake import Handshakes, TlsHandshake, is_tls, unwanted_tls
from headway.server.transport.tls_stream import TlsStream

__all__ = [
    "Acceptor", "AcceptShare", "bound", "Buffer", "ByteStream", "first_bytes", "Handshakes", "is_tls", "lost",
    "NO_FILES_LEFT", "Opening", "PlainStream", "StreamError", "TlsHandshake", "TlsStream", "unwanted_tls",
    "with_options",
]
