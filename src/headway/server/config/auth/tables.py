"""The tables that say who may come in, and what each may do and take up."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from headway.server.config.auth.hook import HookTable
from headway.server.config.auth.jwt import JwtTable
from headway.server.config.fields import Digest, Filter, Hash, Name, Path_, Share, Table, count, one_of, size


class AdminTable(Table):
    """``[auth.admin]``: the rights of users and tokens at the admin API."""

    read: list[Name] | None = None
    """Names that may read; None: all of them."""
    change: list[Name] = Field(default_factory=list)
    """Names that may change, and read."""


class AuthTable(Table):
    """``[auth]``"""

    users: dict[Name, Hash] = Field(default_factory=dict)
    """Users by name, once the settings are read with those of the password file."""
    password_file: Path_ | None = None
    """Users in lines ``NAME:HASH``, as ``mosquitto_passwd`` writes them."""
    tokens: dict[Name, Digest] = Field(default_factory=dict)
    """Tokens of the admin API, as digests."""
    admin: AdminTable = AdminTable()
    groups: dict[Name, list[Name]] = Field(default_factory=dict)
    """Users and tokens by group, for permissions."""
    hook: HookTable | None = None
    jwt: JwtTable | None = None

    @property
    def vouched(self) -> bool:
        """Whether something else than the config may know users."""
        return self.hook is not None or self.jwt is not None

    @property
    def checks_names(self) -> bool:
        """Whether the name that a client gives is checked; if not, it is only a label."""
        return bool(self.users) or self.vouched

    @property
    def asks(self) -> bool:
        """Whether the admin API asks for a login."""
        return bool(self.checks_names or self.tokens)

    def may(self, name: str, *, change: bool) -> bool:
        """Returns whether a user or a token may read, or change, at the admin API."""
        return self.names(name, change=change) or (not change and self.admin.read is None)

    def names(self, name: str, *, change: bool) -> bool:
        """Returns whether ``[auth.admin]`` gives a user or a token this right by name."""
        return name in self.admin.change or (not change and name in (self.admin.read or ()))


class PermissionTable(Table):
    """``[[permission]]``: what a user, a group, or everybody may do. In filters ``%u`` is the user's name, and ``%c``
    the client id."""

    user: Name | None = None
    group: Name | None = None
    connect: list[Filter] = Field(default_factory=list)
    """Filters for client ids; empty: any."""
    publish: list[Filter] = Field(default_factory=list)
    subscribe: list[Filter] = Field(default_factory=list)
    declares: list[Filter] = Field(default_factory=list, alias="declare")
    admin: list[Annotated[str, one_of("read", "change")]] = Field(default_factory=list)


class LimitTable(Table):
    """``[[limit]]``: limits of a user, of each user of a group, or of each user."""

    user: Name | None = None
    group: Name | None = None
    connections: Annotated[int | None, count(0, 1_000_000)] = None
    subscriptions: Annotated[int | None, count(0, 1_000_000)] = None
    publish_rate: Annotated[int | None, count(1, 1_000_000_000)] = None
    """Records a second."""
    publish_bytes: Annotated[int | None, size(1, 1 << 40)] = None
    """Bytes a second."""
    pool_share: Share | None = None
    in_flight_bytes: Annotated[int | None, size(1, 1 << 40)] = None
    """Bytes that were sent and are not acknowledged."""
