"""The config of a broker inside a program (``headway.embed``): the tables of a file, with what differs there.

Rules:
- No port is opened that the config does not name: without ``[listeners]`` there are none, and no admin API.
- ``[listeners.asgi]`` is for clients that come through the program's own web server. It has no URL; its other keys are
  those of any listener, and may be left out.
- Policies may name ``asgi``, and ``program`` for the program's own subscriptions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.core.base import ConfigError

ASGI_LISTENER = "asgi"
PROGRAM_LISTENER = "program"
"""The listener of subscriptions and publishers in the program itself."""
_NOWHERE = "ws://127.0.0.1:0"
"""Stands for the address, which is the web server's: a WebSocket, and on loopback as far as the checks here can say."""


def of_a_program(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the tables of a file as they are meant in a program. Raises ConfigError."""
    found = dict(tables)
    server, listeners = found.get("server", {}), found.get("listeners", {})
    if isinstance(server, Mapping):
        found["server"] = {"admin": False} | dict(server)
    if isinstance(listeners, Mapping):
        pages = listeners.get(ASGI_LISTENER, {})
        if isinstance(pages, Mapping):
            if "url" in pages:
                raise ConfigError(f"listeners.{ASGI_LISTENER}.url: it has none: the address is the web server's")
            pages = {"url": _NOWHERE} | dict(pages)
        found["listeners"] = {**listeners, ASGI_LISTENER: pages}
    return found
