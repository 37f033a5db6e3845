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
    """``http://`` or ``https://``."""
    form: Annotated[Literal["json", "urlencoded"], one_of("json", "urlencoded")] = "json"
    """The form of what is sent: JSON, as EMQX sends it, or a form, as RabbitMQ does."""
    token: Text | None = None
    """Sent as a bearer token, so that the service knows who asks."""
    timeout_s: Annotated[float, duration(0.05, 60.0)] = Field(default=2.0, alias="timeout")
    """Time for an answer."""
    cache_s: Annotated[float, duration(0.0, 86_400.0)] = Field(default=60.0, alias="cache")
    """Time for which who was allowed is allowed again; ``"0s"``: each login is asked for."""
    in_flight_max: Annotated[int, count(1, 256)] = 16
    """Requests at once; as many again may wait."""
    when_away: Annotated[Literal["deny", "allow"], one_of("deny", "allow")] = "deny"
    """The answer to a login while the service gives none."""


# -- jwt ---------------------------------------------------------------------------------------------------------------
#
# ``[auth.jwt]``: tokens that another service has signed are logins.


ALGORITHMS = ("RS256", "ES256", "EdDSA")


class JwtTable(Table):
    """``[auth.jwt]``"""

    keys_file: Path_ | None = None
    """A JWKS file with the public keys; this or ``keys_url``."""
    keys_url: HookUrl | None = None
    """The address of a JWKS file; this or ``keys_file``."""
    algorithms: list[Annotated[str, one_of(*ALGORITHMS)]] = Field(default_factory=lambda: list(ALGORITHMS))
    """Algorithms of signatures that are taken."""
    issuer: Text | None = None
    """The ``iss`` that a token must have.

    Default: any."""
    audience: Text | None = None
    """The ``aud`` that a token must have.

    Default: any."""
    user: Text = "sub"
    """The claim that is the user's name."""
    groups: Text | None = None
    """The claim that lists the user's groups."""
    leeway_s: Annotated[float, duration(0.0, 600.0)] = Field(default=0.0, alias="leeway")
    """Time by which clocks may differ."""
    refresh_s: Annotated[float, duration(10.0, 86_400.0)] = Field(default=3600.0, alias="refresh")
    """Time after which ``keys_url`` is asked again."""
    timeout_s: Annotated[float, duration(0.05, 60.0)] = Field(default=5.0, alias="timeout")
    """Time for an answer of ``keys_url``."""
    disconnect: bool = True
    """A connection ends when its token expires."""


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
    """``[auth.users]``: ``name = "$scrypt$…"``, made by ``headway passwd``; hashes of ``mosquitto_passwd`` are taken,
    too.

    Once the settings are read, the users of the password file are among them."""
    password_file: Path_ | None = None
    """More users, in lines ``NAME:HASH``, as ``mosquitto_passwd`` writes them."""
    tokens: dict[Name, Digest] = Field(default_factory=dict)
    """``[auth.tokens]``: ``name = "$sha256$…"``, made by ``headway passwd --token``; for the admin API."""
    admin: AdminTable = AdminTable()
    """``[auth.admin]``: ``read`` and ``change``, lists of users and tokens.

    Default: all read, none change."""
    groups: dict[Name, list[Name]] = Field(default_factory=dict)
    """``[auth.groups]``: ``name = ["alice", "bob"]``, for permissions."""
    hook: HookTable | None = None
    """``[auth.hook]``: a login service; its keys are below."""
    jwt: JwtTable | None = None
    """``[auth.jwt]``: tokens as logins; its keys are below."""

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
    """The user or token that it is for.

    Default: everybody."""
    group: Name | None = None
    """The group that it is for, in the place of a user.

    Default: everybody."""
    connect: list[Filter] = Field(default_factory=list)
    """Client ids; AMQP: names of connections.

    Default: any."""
    publish: list[Filter] = Field(default_factory=list)
    """Filters for topics, ``$queue/NAME``, ``$exchange/NAME/KEY``."""
    subscribe: list[Filter] = Field(default_factory=list)
    """The same filters as for ``publish``, for reading in any way."""
    declares: list[Filter] = Field(default_factory=list, alias="declare")
    """``$queue/NAME``, ``$exchange/NAME``, ``$cursor/NAME``, ``$writer/NAME``."""
    admin: list[Annotated[str, one_of("read", "change")]] = Field(default_factory=list)
    """Requests at the admin API."""


class LimitTable(Table):
    """``[[limit]]``: limits of a user, of each user of a group, or of each user."""

    user: Name | None = None
    """The user that it is for.

    Default: each user."""
    group: Name | None = None
    """The group that it is for, in the place of a user; for each of its users by itself.

    Default: each user."""
    connections: Annotated[int | None, count(0, 1_000_000)] = None
    """Open connections."""
    subscriptions: Annotated[int | None, count(0, 1_000_000)] = None
    """Subscriptions and consumers, those of sessions whose clients are away included."""
    publish_rate: Annotated[int | None, count(1, 1_000_000_000)] = None
    """Records a second."""
    publish_bytes: Annotated[int | None, size(1, 1 << 40)] = None
    """Bytes a second."""
    pool_share: Share | None = None
    """The share of the pool that waiting records of the user's clients may take up."""
    in_flight_bytes: Annotated[int | None, size(1, 1 << 40)] = None
    """Bytes that were sent to the user's clients and are not acknowledged."""
