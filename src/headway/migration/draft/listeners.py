"""Listeners in the making.

Rules:
- The registry says which schemes there are. A listener of another protocol has no counterpart.
- Beyond this machine a listener lets clients in without a name only if the other system certainly did. If that asked
  for a name, and nothing here can check it, or if it kept clients out in a way that is not understood, the listener is
  on loopback until somebody has looked.
- A certificate is a login only if it was one there.
- A listener with TLS whose certificates cannot be used here is written as a comment, for the file would be refused.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from headway.core.base import ConfigError
from headway.migration.draft.tables import Keyed, commented, table_text
from headway.server.config import TlsTable, Url, load_tls
from headway.server.protocols import SCHEMES
from headway.store.toml import toml_key

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
        self.lowest: dict[str, int] = {}
        """Limits that several settings lower, as numbers."""
        self.pool: dict[str, Keyed] = {}
        self.tls: dict[str, Keyed] = {}
        self.open: bool | None = None
        """Whether clients certainly need no name; None: as all listeners of the draft."""
        self.here = self.host
        """The host that is written: loopback if nobody here could keep out those that it keeps out there."""
        self.fault = ""
        """The reason why the listener is a comment; empty: it is none."""

    def put(self, key: str, item: Any, source: str) -> None:
        self.keys[key] = Keyed(item, source)

    @property
    def spoken(self) -> bool:
        return self.scheme in SCHEMES

    def place(self, *, open_: bool, checked: bool, closed: str) -> None:
        """Decides where it listens, and who may come in. ``open_``: clients need no name there; ``checked``: names are
        checked here; ``closed``: what keeps clients out there and is not understood."""
        open_ = not closed and (open_ if self.open is None else self.open)
        verify = self.tls.get("verify")
        if verify is not None and not open_ and "user" not in self.tls:
            self.tls["user"] = Keyed("none", "a certificate alone is no login there")
        user = self.tls.get("user")
        shown = verify is not None and verify.value == "required" and (user is None or user.value != "none")
        known = checked or shown
        if open_ and known:
            self.keys["allow_anonymous"] = Keyed(True, "as there: clients may connect without a name")
        elif not Url(self.scheme, self.here, self.port).loopback and (closed or not known):
            if open_:
                self.keys["allow_anonymous"] = Keyed(True, "as there: anybody may connect; safer: [auth.users]")
            else:
                self.here = "::1" if ":" in self.host else "127.0.0.1"
                until = f"{closed} is settled" if closed else "there are [auth.users]"
                self.source += f"; on {self.host} there: write that here once {until}"
        if SCHEMES[self.scheme].tls:
            self.fault = self._bad_tls()

    def _bad_tls(self) -> str:
        """Returns why the broker could not listen with these certificates; empty: it could."""
        if "certificate" not in self.tls:
            return "there is no certificate for it"
        if "verify" in self.tls and "ca" not in self.tls:
            return "there is no ca by which its clients' certificates are verified"
        try:
            load_tls(TlsTable.model_validate({key: item.value for key, item in self.tls.items()}), "tls", ())
        except (ConfigError, ValueError) as error:
            return str(error).partition("\n")[0].removeprefix("tls.")
        return ""

    def text(self) -> str:
        """Writes its tables."""
        name = f"listeners.{toml_key(self.name)}"
        url = Keyed(str(Url(self.scheme, self.here, self.port)), self.source)
        text = table_text(f"[{name}]", {"url": url, **self.keys})
        for table, part in (("pool", self.pool), ("tls", self.tls)):
            if part:
                text += "\n" + table_text(f"[{name}.{table}]", part)
        return commented(text) if self.fault else text


def is_address(text: str) -> bool:
    """Tells whether a text can be the host of a listener: an address, or a name."""
    if text in EVERYWHERE:
        return True
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return re.fullmatch(r"(?![0-9.]+$)[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?", text) is not None
    return True
