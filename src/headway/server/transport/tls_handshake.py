"""A TLS handshake: what one client and the broker say to each other before the first byte that is meant for either.

The loop reads and writes the socket, a thread computes (handshakes.py). While a step is computed, the loop touches
neither OpenSSL's objects nor the socket, except to close it.
"""

from __future__ import annotations

import socket
import ssl
from typing import Any, Protocol

from headway.core.base import Reason
from headway.server.config import TlsContext
from headway.server.transport.byte_stream import StreamError, lost
from headway.server.transport.handshakes import Handshakes
from headway.server.transport.tls_words import is_tls, not_tls, worded

HEADER_BYTES = 5
HEAD_BYTES_MAX = HEADER_BYTES + 16 * 1024 + 2048
"""The largest record with its header, and what ciphers may add."""


class Secured(Protocol):
    """The stream that waits for a handshake."""

    def holds(self, size: int) -> None: ...
    def secured(self, handshake: TlsHandshake) -> None: ...
    def insecure(self, reason: Reason, text: str) -> None: ...


class TlsHandshake:
    __slots__ = (
        "_context", "_handshakes", "_head", "_limit", "_most", "_stream", "_url", "incoming", "outgoing", "sock",
        "tls", "unsent", "user", "wire_bytes",
    )  # fmt: skip

    def __init__(
        self, sock: socket.socket, context: TlsContext, handshakes: Handshakes, limit: str, most: int, url: str
    ) -> None:
        """``most``: handshakes that the listener may have under way; ``limit``: the name of the setting that says so;
        ``url``: its address."""
        self.sock = sock
        self.tls: ssl.SSLObject | None = None
        """Made with the first step."""
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.unsent = b""
        """Bytes that the kernel did not take."""
        self.wire_bytes = 0
        self.user = ""
        """The user whose certificate the client has shown."""
        self._context = context
        self._handshakes = handshakes
        self._limit, self._most, self._url = limit, most, url
        self._head = bytearray()
        """Bytes that have come and are not a whole record."""
        self._stream: Secured | None = None

    def begin(self, stream: Secured) -> None:
        self._stream = stream
        self._await_client()

    def drop(self) -> None:
        """Forgets the stream when its connection has ended, whatever ended it: the handshake has failed."""
        self._handshakes.leave(self, self._limit)
        self._handshakes.failed += self._stream is not None
        self._stream = None

    def give_up(self, reason: Reason, text: str) -> None:
        if self._stream is not None:
            self._stream.insecure(reason, text)

    # -- on the loop --------------------------------------------------------------------------------------------------

    def _await_client(self) -> None:
        loop = self._handshakes.loop
        if self.unsent:
            loop.add_writer(self.sock, self._writable)
        loop.add_reader(self.sock, self._readable)
        self._handshakes.wait(self, self._limit, self._most)

    def _readable(self) -> None:
        # The loop calls once for an error, even if there are bytes to read before it (uvloop): so all are read.
        while self._stream is not None and self._read():
            pass

    def _read(self) -> bool:
        """Reads some bytes. Returns whether there may be more to read."""
        try:
            data = self.sock.recv(HEAD_BYTES_MAX - len(self._head))
        except BlockingIOError:
            return False
        except OSError as error:
            self.give_up(Reason.CLIENT_GONE, lost(error.errno))
            return False
        if not data:
            self.give_up(Reason.CLIENT_GONE, "the client left before the TLS handshake was done")
            return False
        self._head += data
        if self.tls is None and not is_tls(self._head):
            self._fail(not_tls(self._url))
        elif self._records_end():
            self._compute()
            return False
        elif len(self._head) >= HEAD_BYTES_MAX:
            self._fail(StreamError("the client sent something that is not TLS", Reason.PROTOCOL_ERROR))
        elif self._stream is not None:
            self._stream.holds(len(self._head))
        return True

    def _writable(self) -> None:
        """Sends the rest to a client whose socket was full."""
        try:
            if self._stream is None or self._push():
                self._handshakes.loop.remove_writer(self.sock)
        except OSError as error:
            self.give_up(Reason.CLIENT_GONE, lost(error.errno))

    def _compute(self) -> None:
        assert self._stream is not None
        self._stream.holds(0)
        loop = self._handshakes.loop
        self._handshakes.leave(self, self._limit)
        loop.remove_reader(self.sock)
        loop.remove_writer(self.sock)
        self._handshakes.compute(self._limit, self._step, self._stepped)

    def _stepped(self, error: BaseException | None) -> None:
        if self._stream is None:
            return  # the connection has ended meanwhile
        try:
            self._push()
        except OSError as gone:
            self.give_up(Reason.CLIENT_GONE, lost(gone.errno))
            return
        if isinstance(error, ssl.SSLWantReadError):
            self._await_client()
        elif isinstance(error, ssl.SSLError):
            self._fail(worded(error, opening=True))
        elif error is not None:
            self.give_up(Reason.INTERNAL_ERROR, "internal error")
            raise error
        else:
            self._finish()

    def _finish(self) -> None:
        assert self.tls is not None
        certificate = self.tls.getpeercert()
        part = self._context.user
        if certificate and part != "none":
            self.user = user_of(certificate, part)
            if not self.user:
                text = f"the client's certificate has no {part.replace('_', ' ')} to be its user name"
                self._fail(StreamError(text, Reason.NOT_AUTHORIZED))
                return
        self._handshakes.done += 1
        self.incoming.write(self._head)
        stream, self._stream = self._stream, None
        assert stream is not None
        stream.secured(self)

    def _fail(self, error: StreamError) -> None:
        self.give_up(error.reason, str(error))

    def _push(self) -> bool:
        """Sends what OpenSSL has written. Returns whether the kernel has taken all of it."""
        data = self.unsent + self.outgoing.read()
        self.wire_bytes += len(data) - len(self.unsent)
        self.unsent = data
        try:
            if data:
                self.unsent = data[self.sock.send(data) :]
        except BlockingIOError:
            return False
        return not self.unsent

    # -- in a thread --------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        if self._stream is None:
            return  # the connection has ended while this waited for a thread
        if self.tls is None:
            self.tls = self._context.ssl.wrap_bio(self.incoming, self.outgoing, server_side=True)
        end = self._records_end()
        self.incoming.write(self._head[:end])
        del self._head[:end]
        self.tls.do_handshake()

    def _records_end(self) -> int:
        """Returns where the last whole record ends; 0: there is none."""
        head, end = self._head, 0
        while len(head) >= end + HEADER_BYTES:
            stop = end + HEADER_BYTES + int.from_bytes(head[end + 3 : end + 5], "big")
            if stop > len(head):
                break
            end = stop
        return end


def user_of(certificate: dict[str, Any], part: str) -> str:
    """Returns the user that a client's certificate names; empty: it names nobody."""
    if part == "common_name":
        pairs = [pair for group in certificate.get("subject", ()) for pair in group]
        return next((value for name, value in pairs if name == "commonName"), "")
    return next((value for _, value in certificate.get("subjectAltName", ())), "")
