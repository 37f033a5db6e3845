"""The certificates of a whole config: all of them, for the broker and for ``headway check``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from headway.core.base import ConfigError
from headway.server.config.settings import Settings
from headway.server.config.tls.certificates import TlsContext, TlsTable, doubts, load_tls

ADMIN_TLS = "server.tls"
HTTP = "http/1.1"


def tls_of(listener: str) -> str:
    """Returns the name of a listener's table."""
    return f"listeners.{listener}.tls"


def tls_tables(settings: Settings) -> Iterator[tuple[str, TlsTable, Sequence[str]]]:
    """Yields the table's name, the table, and the names for ALPN, of each table that is used."""
    admin = settings.server
    if admin.admin is not None and admin.tls is not None:
        yield ADMIN_TLS, admin.tls, (HTTP,)
    for name, listener in settings.listeners.items():
        if listener.tls is not None:
            kind = listener.url.kind
            yield tls_of(name), listener.tls, (HTTP,) if kind.websocket else kind.protocols


def with_tls_of(fresh: Settings, running: Settings) -> Settings:
    """Returns the running settings with the certificates of others, where both have some."""
    listeners = {
        name: table.model_copy(update={"tls": new.tls})
        if table.tls is not None and (new := fresh.listeners.get(name)) is not None and new.tls is not None else table
        for name, table in running.listeners.items()
    }  # fmt: skip
    server = running.server
    if server.tls is not None and fresh.server.tls is not None:
        server = server.model_copy(update={"tls": fresh.server.tls})
    return replace(running, server=server, listeners=listeners)


def load_all_tls(settings: Settings) -> dict[str, TlsContext]:
    """Reads all certificates. Returns what was read, by table. Raises ConfigError."""
    return {where: load_tls(table, where, protocols) for where, table, protocols in tls_tables(settings)}


def bad_certificates(settings: Settings) -> list[str]:
    """Returns what is wrong with the files, one line for each table."""
    found: list[str] = []
    for where, table, protocols in tls_tables(settings):
        try:
            load_tls(table, where, protocols)
        except ConfigError as error:
            found.append(str(error))
    return found


def doubtful_certificates(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Yields the table, the key, and a doubt, about certificates that can be used."""
    for where, table, _ in tls_tables(settings):
        for key, text in doubts(table):
            yield where, key, text
