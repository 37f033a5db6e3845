"""Where the broker of a config is."""

from __future__ import annotations

from headway.client.address import read_admin_url
from headway.core.base import ConfigError
from headway.server.config import Settings


def admin_url(settings: Settings) -> str:
    """Finds the URL of the broker's admin API. Raises ConfigError."""
    url = settings.server.admin
    if url is None or not url.port:
        raise ConfigError("the config does not say where the broker's admin API is: --admin http://HOST:PORT")
    return read_admin_url(str(url))
