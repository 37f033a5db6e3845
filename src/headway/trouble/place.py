"""Addresses of any broker, in the protocols that this test bench speaks: ``mqtt://alice:secret@broker:1883``.

``ca`` (``mqtts://broker?ca=ca.pem``) names the CA; without it the CAs of this machine are trusted.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
from typing import NamedTuple
from urllib.parse import unquote

from headway.client.address_parts import open_tls, read_parts
from headway.core.base import ConfigError

PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 8083, "wss": 8084, "amqp": 5672, "amqps": 5671}
PROTOCOLS = {"ws": "mqtt", "wss": "mqtt"}
WITH_TLS = frozenset({"mqtts", "wss", "amqps"})
PATHS = {"ws": "/mqtt", "wss": "/mqtt"}


class Place(NamedTuple):
    """Where a broker listens, and the login for it."""

    protocol: str
    """``mqtt`` or ``amqp``."""
    host: str
    port: int
    websocket_path: str | None
    tls: ssl.SSLContext | None
    user: str | None
    password: str | None
    virtual_host: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def read_place(text: str, user: str | None = None, password: str | None = None, ca: str | None = None) -> Place:
    """Takes an address apart. Raises ConfigError, which does not repeat the login."""
    parts = read_parts(text, PORTS, ("ca",), f"; its scheme is one of {', '.join(PORTS)}")
    scheme, host = parts.scheme, parts.host
    files = parts.options or ({"ca": ca} if ca else {})
    if files and scheme not in WITH_TLS:
        raise ConfigError(f"a CA is for {', '.join(sorted(WITH_TLS))}, and the address is {scheme}://{host}")
    return Place(
        PROTOCOLS.get(scheme, scheme.removesuffix("s")), host, parts.port,
        (parts.path or PATHS[scheme]) if scheme in PATHS else None,
        open_tls(files, host) if scheme in WITH_TLS else None,
        parts.user if user is None else user, parts.password if password is None else password,
        unquote(parts.path[1:]) or "/" if scheme.startswith("amqp") else "/",
    )  # fmt: skip


def is_loopback(place: Place) -> bool:
    """Says whether all addresses of the host are this machine's own. Raises ConfigError for a host without any."""
    try:
        found = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"{place.host} is not known: {error.strerror or error}") from None
    return all(ipaddress.ip_address(str(one[4][0]).partition("%")[0]).is_loopback for one in found)
