"""Addresses of a broker's listeners for MQTT, as people write them: ``mqtt://alice:secret@broker:1883``.

``mqtts://`` and ``wss://`` are with TLS: ``?ca=ca.pem`` names the CA, ``certificate`` and ``key`` the files for a
broker that asks for the client's; without ``ca`` the CAs of this machine are trusted. ``ws://`` and ``wss://`` are MQTT
in a WebSocket. A token stands as a password without a name: ``mqtt://:TOKEN@broker``.
"""

from __future__ import annotations

import ssl
from typing import NamedTuple

from headway.client.address_parts import open_tls, read_parts
from headway.core.base import ConfigError

PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 8083, "wss": 8084}
TOKEN_USER = "token"
"""The name that goes with a token: any will do."""
FILES = ("ca", "certificate", "key")


class BrokerAddress(NamedTuple):
    host: str
    port: int
    websocket_path: str | None
    """The path of the WebSocket; None: plain TCP."""
    tls: ssl.SSLContext | None
    user: str | None
    password: str | None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def read_broker_address(url: str) -> BrokerAddress:
    """Takes an address apart and opens its certificates. Raises ConfigError, which does not repeat the login."""
    parts = read_parts(url, PORTS, FILES)
    scheme, host = parts.scheme, parts.host
    if parts.options and scheme not in ("mqtts", "wss"):
        raise ConfigError(f"certificates are for mqtts:// and wss://, and the address is {scheme}://{host}")
    return BrokerAddress(
        host, parts.port, (parts.path or "/mqtt") if scheme.startswith("ws") else None,
        open_tls(parts.options, host) if scheme in ("mqtts", "wss") else None,
        TOKEN_USER if parts.user == "" else parts.user, parts.password,
    )  # fmt: skip
