"""Users: whom a config knows by name, and whether there may be others."""

from __future__ import annotations

from headway.server.config.settings import Settings
from headway.server.config.tls.files import tls_tables


def certificates_are_logins(settings: Settings) -> bool:
    """Returns whether there may be users whom only their certificates name."""
    return any(table.names_users for _, table, _ in tls_tables(settings))


def users_are_elsewhere(settings: Settings) -> bool:
    """Returns whether there may be users whose names stand nowhere in the config."""
    return certificates_are_logins(settings) or settings.auth.vouched


def known_users(settings: Settings) -> list[str]:
    """Returns the names of users and tokens. Where there may be others, the names that permissions and
    groups have may be theirs."""
    auth = settings.auth
    names = [*auth.users, *auth.tokens]
    if users_are_elsewhere(settings):
        names += [rule.user for rule in settings.permissions if rule.user is not None]
        names += [member for members in auth.groups.values() for member in members]
    return list(dict.fromkeys(names))
