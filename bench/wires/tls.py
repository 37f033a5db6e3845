"""The same wires inside TLS. The driver verifies nothing: it measures brokers, not certificates."""

from __future__ import annotations

import socket
import ssl
from functools import cache
from typing import Any

from bench.wires.mqtt import Mqtt
from bench.wires.nats import Nats

RECORD_BYTES = 16 * 1024


class TlsSocket(ssl.SSLSocket):
    """A TLS socket that the driver can use like a plain one."""

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        """Reads as many records as have come and the buffer has room for. Raises BlockingIOError. A record is not read
        in part: the kernel would not tell of the rest."""
        view, got = memoryview(buffer), 0
        try:
            while not got or len(view) - got >= RECORD_BYTES:
                count = super().recv_into(view[got:])
                if not count:
                    return got
                got += count
        except (ssl.SSLWantReadError, TimeoutError):
            if not got:
                raise BlockingIOError from None
        except ssl.SSLError as error:
            raise ConnectionError(str(error)) from None
        return got

    def send(self, data: Any, flags: int = 0) -> int:
        try:
            return super().send(data, flags)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            raise BlockingIOError from None


@cache
def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.sslsocket_class = TlsSocket
    return context


def secured(sock: socket.socket) -> socket.socket:
    return _context().wrap_socket(sock)


class MqttTls(Mqtt):
    """MQTT in TLS from the first byte."""

    def dial(self, port: int) -> socket.socket:
        return secured(super().dial(port))


class NatsTls(Nats):
    """NATS, whose server says a line in clear before TLS begins."""

    def greeted(self, port: int) -> socket.socket:
        return secured(super().greeted(port))
