"""Listeners in the making.

Rules:
- The registry says which schemes there are. A listener of another protocol has no counterpart.
- Beyond this machine a listener lets clients in without a name only if the other system did. If that asked for a name,
  and nothing here can check it, the listener is on loopback until there are users.
- A listener with TLS whose certificates cannot be read here is written as a comment, for the file would be refused.
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Any

from headway.migration.draft.tables import Keyed, commented, table_text
from headway.server.config import Url
from headway.server.protocols import SCHEMES
from headway.store.toml_text import toml_key

EVERYWHERE = ("", "*", "0.0.0.0")
_NAME = re.compile(r"[^A-Za-z0-9_-]+")


class ListenerDraft:
    """A listener with its tables."""

    def __init__(self, name: str, scheme: str, host: str, port: int, source: str) -> None:
        self.name = _NAME.sub("-", name).strip("-")[:60] or scheme
        self.scheme = scheme
        self.host = "0.0.0.0" if host in EVERYWHERE else host.strip("[]")
        self.port = port
        self.source = source
        self.keys: dict[str, Keyed] = {}
        self.pool: dict[str, Keyed] = {}
        self.tls: dict[str, Keyed] = {}
        self.open: bool | None = None
        """Whether clients need no name; None: as all listeners of the draft."""

    def put(self, key: str, item: Any, source: str) -> None:
        self.keys[key] = Keyed(item, source)

    @property
    def spoken(self) -> bool:
        return self.scheme in SCHEMES

    @property
    def usable(self) -> bool:
        """Tells whether the broker could listen as it stands: with TLS its certificates are needed."""
        if not SCHEMES[self.scheme].tls:
            return True
        needed = [item.value for key, item in self.tls.items() if key in ("certificate", "key", "ca")]
        return "certificate" in self.tls and all(_readable(path) for path in needed)

    def text(self, *, open_: bool, checked: bool) -> str:
        """Writes its tables. ``open_``: clients need no name there; ``checked``: names are checked here."""
        host, note = self.host, self.source
        known = checked or self.tls.get("verify", Keyed("", "")).value == "required"
        keys = dict(self.keys)
        if not Url(self.scheme, host, self.port).loopback and not known:
            if self.open if self.open is not None else open_:
                keys["allow_anonymous"] = Keyed(True, "as there: anybody may connect; safer: [auth.users]")
            else:
                host, note = "127.0.0.1", f"{note}; on {host} there: write that here once there are [auth.users]"
        elif (self.open if self.open is not None else open_) and known:
            keys["allow_anonymous"] = Keyed(True, "as there: clients may connect without a name")
        name = f"listeners.{toml_key(self.name)}"
        text = table_text(f"[{name}]", {"url": Keyed(str(Url(self.scheme, host, self.port)), note), **keys})
        for table, part in (("pool", self.pool), ("tls", self.tls)):
            if part:
                text += "\n" + table_text(f"[{name}.{table}]", part)
        return text if self.usable else commented(text)


def _readable(path: str) -> bool:
    try:
        with Path(path).expanduser().open("rb"):
            return True
    except OSError:
        return False


def is_address(text: str) -> bool:
    """Tells whether a text can be the host of a listener: an address, or a name."""
    if text in EVERYWHERE:
        return True
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?", text) is not None
    return True
