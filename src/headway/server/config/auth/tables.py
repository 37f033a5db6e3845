"""The tables that say who may come in, and what each may do and take up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from headway.server.config.fields import (
    Digest,
    Filter,
    Hash,
    HookUrl,
    Name,
    Path_,
    Share,
    Table,
    Text,
    count,
    duration,
    one_of,
    size,
)

# -- hook --------------------------------------------------------------------------------------------------------------
#
# ``[auth.hook]``: an HTTP service that is asked who may log in.


class HookTable(Table):
    """``[auth.hook]``"""

    url: HookUrl
    form: Annotated[Literal["json", "urlencoded"], one_of("json", "urlencoded")] = "json"
    """The form of requests: JSON, as EMQX sends it, or a form, as RabbitMQ does."""
    token: Text | None = None
    """Sent as a bearer token, so that the service knows who asks."""
    timeout_s: Annotated[float, duration(0.05, 60.0)] = Field(default=2.0, alias="timeout")
    cache_s: Annotated[float, duration(0.0, 86_400.0)] = Field(default=60.0, alias="cache")
    """Time for which a login that was allowed is allowed again without asking; 0: every login is asked for."""
    in_flight_max: Annotated[int, count(1, 256)] = 16
    """Requests at once."""
    when_away: Annotated[Literal["deny", "allow"], one_of("deny", "allow")] = "deny"
    """The verdict on a login that the service gives no answer to."""


# -- jwt ---------------------------------------------------------------------------------------------------------------
#
# ``[auth.jwt]``: tokens that another service has signed are logins.


ALGORITHMS = ("RS256", "ES256", "EdDSA")


class JwtTable(Table):
    """``[auth.jwt]``"""

    keys_file: Path_ | None = None
    """A JWKS file: the public keys of who signs tokens."""
    keys_url: HookUrl | None = None
    """Or the address where it is."""
    algorithms: list[Annotated[str, one_of(*ALGORITHMS)]] = Field(default_factory=lambda: list(ALGORITHMS))
    issuer: Text | None = None
    """The ``iss`` that a token must have; None: any."""
    audience: Text | None = None
    """The ``aud`` that a token must be for; None: any."""
    user: Text = "sub"
    """The claim that is the user's name."""
    groups: Text | None = None
    """The claim that lists the user's groups; None: tokens name none."""
    leeway_s: Annotated[float, duration(0.0, 600.0)] = Field(default=0.0, alias="leeway")
    """Time by which clocks may differ."""
    refresh_s: Annotated[float, duration(10.0, 86_400.0)] = Field(default=3600.0, alias="refresh")
    """Time after which ``keys_url`` is asked again."""
    timeout_s: Annotated[float, duration(0.05, 60.0)] = Field(default=5.0, alias="timeout")
    disconnect: bool = True
    """Whether a connection ends when its token expires."""


def bad_jwt(table: JwtTable) -> Iterator[str]:
    """Yields what is wrong with the table."""
    if (table.keys_file is None) == (table.keys_url is None):
        yield "auth.jwt: say where the public keys are, either in keys_file or in keys_url"
    if not table.algorithms:
        yield "auth.jwt.algorithms: is empty, so no token would do"


# -- tables ------------------------------------------------------------------------------------------------------------


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
