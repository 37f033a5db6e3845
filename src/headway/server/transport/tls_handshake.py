"""A TLS handshake: what one client and the broker say to each other before the first byte that is meant for either.

The loop reads and writes the socket, a thread computes. While a step is computed, the loop touches
neither OpenSSL's objects nor the socket, except to close it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol

from headway.core.base import Reason
from headway.server.config import TlsContext
from headway.server.transport.byte_stream import StreamError, lost

# -- handshakes --------------------------------------------------------------------------------------------------------
#
# Handshakes: the TLS handshakes under way, how many each listener may have, and the thread that computes them.
#
# Theory of operation. A handshake's arithmetic takes from a tenth of a millisecond to some milliseconds, which the loop
# must not wait for. OpenSSL computes outside the interpreter's lock, so it is done in threads, one step of one
# handshake at a time, and only when a whole record has come: a client that sends byte by byte costs the loop a ``recv``
# each.
#
# Rules:
# - The loop's thread alone reads and writes sockets. It leaves a handshake alone while a step of it is computed.
# - A listener has at most ``handshakes_max`` handshakes under way. One more ends the one that has waited longest for
# its
#   client: those who never go on do not keep out those who do.


THREADS_MAX = 4


class Handshake(Protocol):
    """One handshake."""

    def give_up(self, reason: Reason, text: str) -> None: ...


class Handshakes:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        count = min(THREADS_MAX, max(1, (os.cpu_count() or 1) // 2))
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="headway-tls")
        self._waiting: dict[str, dict[Handshake, None]] = {}
        """Handshakes by their limit that wait for their clients; who waits longest is first."""
        self._computing: dict[str, int] = {}
        self.done = self.failed = 0

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values())) + sum(self._computing.values())

    def wait(self, handshake: Handshake, limit: str, most: int) -> None:
        """Notes that a handshake waits for its client. ``limit``: the name of the setting that says ``most``; each has
        handshakes of its own."""
        waiting = self._waiting.setdefault(limit, {})
        waiting[handshake] = None
        if len(waiting) + self._computing.get(limit, 0) > most:
            oldest = next(iter(waiting))
            text = (f"the client was the slowest of {most} TLS handshakes under way, and another client came "
                    f"({limit})")  # fmt: skip
            oldest.give_up(Reason.CONNECT_TIMEOUT, text)

    def leave(self, handshake: Handshake, limit: str) -> None:
        """Notes that a handshake does not wait any more."""
        self._waiting.get(limit, {}).pop(handshake, None)

    def compute(self, limit: str, step: Callable[[], None], then: Callable[[BaseException | None], None]) -> None:
        """Computes a step in a thread, then calls ``then`` on the loop, with the error if there was one."""
        self._computing[limit] = self._computing.get(limit, 0) + 1

        def finish(computed: asyncio.Future[None]) -> None:
            self._computing[limit] -= 1
            if not computed.cancelled():
                then(computed.exception())

        self.loop.run_in_executor(self._threads, step).add_done_callback(finish)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)


# -- tls words ---------------------------------------------------------------------------------------------------------
#
# Words for what goes wrong with TLS: one sentence that says who did what, for the log and for ``headway why``.


HANDSHAKE_BYTE: Final = 0x16
"""The first byte of a TLS connection: the type of a record with part of a handshake. The version follows, 3.x."""
_NO_CLIENT_CERTIFICATE = {"PEER_DID_NOT_RETURN_A_CERTIFICATE"}
_TOO_OLD = {"UNSUPPORTED_PROTOCOL", "VERSION_TOO_LOW", "WRONG_SSL_VERSION", "NO_PROTOCOLS_AVAILABLE"}
_NOT_TLS = {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "UNKNOWN_PROTOCOL", "BAD_PACKET_LENGTH"}
_NOTHING_IN_COMMON = {
    "NO_SHARED_CIPHER", "NO_SUITABLE_KEY_SHARE", "NO_SHARED_SIGNATURE_ALGORITHMS", "NO_SUITABLE_SIGNATURE_ALGORITHM",
}  # fmt: skip
_REFUSED = {
    "UNKNOWN_CA": "it does not know the CA that signed it; give the client the CA's certificate",
    "CERTIFICATE_EXPIRED": "it has expired",
    "BAD_CERTIFICATE": "it is not for the host name that the client asked for, or cannot be verified",
    "CERTIFICATE_UNKNOWN": "it does not trust it",
    "CERTIFICATE_REVOKED": "it was revoked",
    "UNSUPPORTED_CERTIFICATE": "it cannot use such a certificate",
}  # fmt: skip


def is_tls(data: bytes | bytearray) -> bool:
    """Returns whether a connection's first bytes are TLS."""
    return data[0] == HANDSHAKE_BYTE and (len(data) < 2 or data[1] == 3)


def not_tls(url: str) -> StreamError:
    return StreamError(
        f"the client did not begin with TLS: it has to use {url}, with a CA if the certificate needs one",
        Reason.PROTOCOL_ERROR,
    )


def unwanted_tls(listener: str) -> str:
    return (
        "the client speaks TLS, and this listener does not: give the client the address of one that does, or this one "
        f"a [listeners.{listener}.tls]"
    )


def worded(error: ssl.SSLError, *, opening: bool) -> StreamError:
    """Returns an error of TLS in words. ``opening``: the handshake was under way."""
    name = error.reason or ""
    alert = name.partition("_ALERT_")[2]
    if isinstance(error, ssl.SSLCertVerificationError):
        return StreamError(f"the client's certificate was refused: {error.verify_message}", Reason.NOT_AUTHORIZED)
    if name in _NO_CLIENT_CERTIFICATE:
        return StreamError("the client shows no certificate, and this listener requires one", Reason.NOT_AUTHORIZED)
    if alert in _REFUSED:
        text = f"the client refused the broker's certificate: {_REFUSED[alert]}"
    elif name in _TOO_OLD or alert == "PROTOCOL_VERSION":
        text = "the client offers no version of TLS that is spoken here (1.2 and 1.3)"
    elif name in _NOTHING_IN_COMMON or alert == "HANDSHAKE_FAILURE":
        text = "the client and the broker have no cipher or signature in common"
    elif name in _NOT_TLS:
        text = "the client sent something that is not TLS"
    elif alert:
        text = f"the client broke off TLS: {alert.replace('_', ' ').lower()}"
    else:
        what = "the TLS handshake failed" if opening else "the TLS connection is broken"
        text = f"{what}: {(name or str(error)).replace('_', ' ').lower()}"
    return StreamError(text, Reason.PROTOCOL_ERROR)


# -- tls handshake -----------------------------------------------------------------------------------------------------


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
