"""``[auth.jwt]``: tokens that another service has signed are logins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from headway.server.config.fields import HookUrl, Path_, Table, Text, duration, one_of

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
