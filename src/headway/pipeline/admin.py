"""The address of a config's broker."""

from __future__ import annotations

from headway.client.address import read_admin_url
from headway.core.base import ConfigError
from headway.server.config import Settings


def admin_url(settings: Settings, given: str | None = None) -> str:
    """Returns the URL of the broker's admin API: the given one, or as the config says. Raises ConfigError."""
    if given:
        return read_admin_url(given)
    url = settings.server.admin
    if url is None or not url.port:
        raise ConfigError("the config does not say where the broker's admin API is: --admin http://HOST:PORT")
    return read_admin_url(str(url))
