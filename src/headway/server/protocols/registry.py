"""The registry of protocols. Protocols are found, not listed: each is a folder in ``wire`` and one in ``server``. Their
common name is also the scheme of the protocol's listener URLs. Other schemes carry a protocol in something else.

``wire/NAME/codec.py`` has its ``CODEC``; ``server/NAME`` shows its ``PEER``.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any, NamedTuple

from headway import wire
from headway.core.message import Dialect
from headway.wire.codec import Codec

WEBSOCKET_PORT = 8083
WEBSOCKET_TLS_PORT = 8084


class Scheme(NamedTuple):
    """The scheme of a listener's URL."""

    protocol: str
    port: int
    """Default port."""
    websocket: bool = False
    """Whether the protocol's bytes are in the frames of a WebSocket."""
    tls: bool = False


def _found() -> dict[str, Codec]:
    names = [module.name for module in iter_modules(wire.__path__) if module.ispkg]
    codecs: dict[str, Codec] = {name: import_module(f"{wire.__name__}.{name}.codec").CODEC for name in names}
    return dict(sorted(codecs.items(), key=lambda item: item[1].port))


def _by_tag(dialects: list[type[Any]]) -> dict[object, type[Dialect]]:
    tagged = {dialect.__struct_config__.tag: dialect for dialect in dialects}
    assert len(tagged) == len(dialects), "two dialects that the journal cannot tell apart"
    return tagged


PROTOCOLS = _found()
"""Codecs by name, in the order of their ports."""
DIALECTS = _by_tag([dialect for codec in PROTOCOLS.values() for dialect in codec.dialects])
"""Dialects that the journal keeps, by tag."""
(QUEUES,) = [codec.queues for codec in PROTOCOLS.values() if codec.queues is not None]
"""The form in which queues keep records."""

SUBPROTOCOLS = {word: name for name, codec in PROTOCOLS.items() for word in codec.subprotocols}
"""Protocols by their names in the handshake of a WebSocket."""
(_OVER_WEBSOCKET,) = set(SUBPROTOCOLS.values())
SCHEMES = {name: Scheme(name, codec.port) for name, codec in PROTOCOLS.items()} | {
    "ws": Scheme(_OVER_WEBSOCKET, WEBSOCKET_PORT, websocket=True)
}
SCHEMES |= {f"{name}s": Scheme(name, codec.tls_port, tls=True) for name, codec in PROTOCOLS.items()}
SCHEMES["wss"] = Scheme(_OVER_WEBSOCKET, WEBSOCKET_TLS_PORT, websocket=True, tls=True)


def peer_of(name: str) -> Any:
    """Returns the protocol's peer class. It takes an engine, a connection and the listener's table."""
    return import_module(f"headway.server.{name}").PEER
