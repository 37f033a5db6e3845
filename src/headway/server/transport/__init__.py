"""Byte streams between connections and their kernel sockets, plain and with TLS."""

from headway.server.transport.acceptor import NO_FILES_LEFT, Acceptor, AcceptShare
from headway.server.transport.byte_stream import (
    Buffer,
    ByteStream,
    Opening,
    PlainStream,
    StreamError,
    first_bytes,
    lost,
)
from headway.server.transport.handshakes import Handshakes
from headway.server.transport.sockets import bound, with_options
from headway.server.transport.tls_handshake import TlsHandshake
from headway.server.transport.tls_stream import TlsStream
from headway.server.transport.tls_words import is_tls, unwanted_tls

__all__ = [
    "Acceptor", "AcceptShare", "bound", "Buffer", "ByteStream", "first_bytes", "Handshakes", "is_tls", "lost",
    "NO_FILES_LEFT", "Opening", "PlainStream", "StreamError", "TlsHandshake", "TlsStream", "unwanted_tls",
    "with_options",
]
