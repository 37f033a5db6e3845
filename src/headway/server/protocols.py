"""The protocols that there are, for code that knows none of them by name."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from headway.core.message import Dialect
from headway.wire.codecs import codecs, queue_form

WEBSOCKET_PORT = 8083
WEBSOCKET_TLS_PORT = 8084
AUTO_PORT = 61616
AUTO_TLS_PORT = 61617


class Scheme(NamedTuple):
    """The scheme of a listener's URL."""

    protocols: tuple[str, ...]
    """The protocols that are spoken. If there are several, the first bytes of a connection say which one it is
    (server/peers/undecided.py), or the handshake of its WebSocket."""
    port: int
    """Default port."""
    owner: str = ""
    """The protocol that answers first bytes that are nobody's; empty: none does."""
    websocket: bool = False
    """Whether the protocol's bytes are in the frames of a WebSocket."""
    tls: bool = False


def _by_tag(dialects: list[type[Any]]) -> dict[object, type[Dialect]]:
    tagged = {dialect.__struct_config__.tag: dialect for dialect in dialects}
    assert len(tagged) == len(dialects), "two dialects that the journal cannot tell apart"
    return tagged


def _schemes() -> dict[str, Scheme]:
    hosts = {name: codec for name, codec in PROTOCOLS.items() if not codec.scheme}
    spoken = {
        host: (host, *(name for name, codec in PROTOCOLS.items() if codec.scheme == host)) for host in hosts
    }  # fmt: skip
    over_websocket = tuple(dict.fromkeys(SUBPROTOCOLS.values()))
    found = {host: Scheme(spoken[host], codec.port, host) for host, codec in hosts.items()}
    found["ws"] = Scheme(over_websocket, WEBSOCKET_PORT, websocket=True)
    found["auto"] = Scheme(tuple(PROTOCOLS), AUTO_PORT)
    found |= {f"{host}s": Scheme(spoken[host], codec.tls_port, host, tls=True) for host, codec in hosts.items()}
    found["wss"] = Scheme(over_websocket, WEBSOCKET_TLS_PORT, websocket=True, tls=True)
    found["autos"] = Scheme(tuple(PROTOCOLS), AUTO_TLS_PORT, tls=True)
    return found


PROTOCOLS = codecs()
"""Codecs by name, in the order of their ports."""
DIALECTS = _by_tag([dialect for codec in PROTOCOLS.values() for dialect in codec.dialects])
"""Dialects that the journal keeps, by tag."""
QUEUES = queue_form()
"""The form in which queues keep records."""
SUBPROTOCOLS = {word: name for name, codec in PROTOCOLS.items() for word in codec.subprotocols}
"""Protocols by their names in the handshake of a WebSocket."""
SCHEMES = _schemes()


def peer_of(name: str) -> Any:
    """Returns the protocol's peer class. It takes an engine, a connection and the listener's table."""
    return import_module(f"headway.server.{name}").PEER
