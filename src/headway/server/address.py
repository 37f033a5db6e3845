"""Where a broker's admin API is, as people write it: on the command line, in options of Spark."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

from headway.core.errors import ConfigError

ADMIN_URL = "http://127.0.0.1:9883"
"""Where it is unless the config says otherwise."""


def read_admin_url(text: str) -> str:
    """Without a slash at its end; a host and port alone will do. Raises ConfigError."""
    full = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(full)
        sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        sound = False
    if not sound or not full.isprintable() or " " in full or parts.query or parts.fragment:
        shown = json.dumps(text, ensure_ascii=not text.isprintable())
        raise ConfigError(f"{shown} is not the address of an admin API, such as {ADMIN_URL}")
    return full.rstrip("/")
