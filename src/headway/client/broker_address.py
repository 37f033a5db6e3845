"""Addresses of a broker's listeners for MQTT, as people write them: ``mqtt://alice:secret@broker:1883``.

``mqtts://`` and ``wss://`` are with TLS: ``?ca=ca.pem`` names the CA, ``certificate`` and ``key`` the files for a
broker that asks for the client's; without ``ca`` the CAs of this machine are trusted. ``ws://`` and ``wss://`` are MQTT
in a WebSocket. A token stands as a password without a name: ``mqtt://:TOKEN@broker``.
"""

from __future__ import annotations

import ssl
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

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
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
        files = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
    except ValueError:
        scheme, host, port, files = "", None, None, {}
    if scheme not in PORTS or not host or port == 0 or files.keys() - set(FILES):
        shown = url.rpartition("@")[2]
        raise ConfigError(f"{shown!r} is not the address of a broker, such as mqtt://127.0.0.1:1883")
    if files and scheme not in ("mqtts", "wss"):
        raise ConfigError(f"certificates are for mqtts:// and wss://, and the address is {scheme}://{host}")
    return BrokerAddress(
        host, port or PORTS[scheme], (parts.path or "/mqtt") if scheme.startswith("ws") else None,
        _tls(files, host) if scheme in ("mqtts", "wss") else None,
        None if parts.username is None else unquote(parts.username) or TOKEN_USER,
        None if parts.password is None else unquote(parts.password),
    )  # fmt: skip


def _tls(files: dict[str, str], host: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=files.get("ca"))
        if "certificate" in files:
            context.load_cert_chain(files["certificate"], files.get("key"))
    except OSError as error:  # ssl.SSLError is one
        named = ", ".join(files.values())
        raise ConfigError(f"{named} cannot be used for {host}: {error.strerror or error}") from None
    return context
