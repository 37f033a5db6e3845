"""An address of a broker taken apart: ``mqtts://alice:secret@broker:8883?ca=ca.pem``."""

from __future__ import annotations

import ssl
from collections.abc import Collection, Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from headway.core.base import ConfigError


class AddressParts(NamedTuple):
    scheme: str
    host: str
    port: int
    path: str
    user: str | None
    password: str | None
    options: dict[str, str]


def read_parts(text: str, ports: Mapping[str, int], options: Collection[str], hint: str = "") -> AddressParts:
    """Takes an address apart. ``ports``: of each scheme that there is, the usual one. ``options``: those that may stand
    behind ``?``. ``hint``: what the error says at its end. Raises ConfigError, which does not repeat the login."""
    try:
        parts = urlsplit(text)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
        said = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
    except ValueError:
        scheme, host, port, said = "", None, None, {}
    if scheme not in ports or not host or port == 0 or said.keys() - set(options):
        shown = text.rpartition("@")[2]
        raise ConfigError(f"{shown!r} is not the address of a broker, such as mqtt://127.0.0.1:1883{hint}")
    return AddressParts(
        scheme, host, port or ports[scheme], parts.path, _login(parts.username), _login(parts.password), said
    )  # fmt: skip


def _login(text: str | None) -> str | None:
    return None if text is None else unquote(text)


def open_tls(files: Mapping[str, str], host: str) -> ssl.SSLContext:
    """Opens the files ``ca``, ``certificate`` and ``key`` as far as they are named; without a CA those of this machine
    are trusted. Raises ConfigError."""
    try:
        context = ssl.create_default_context(cafile=files.get("ca"))
        if "certificate" in files:
            context.load_cert_chain(files["certificate"], files.get("key"))
    except OSError as error:  # ssl.SSLError is one
        named = ", ".join(files.values())
        raise ConfigError(f"{named} cannot be used for {host}: {error.strerror or error}") from None
    return context
