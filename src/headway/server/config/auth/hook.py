"""``[auth.hook]``: an HTTP service that is asked who may log in."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from headway.server.config.fields import HookUrl, Table, Text, count, duration, one_of


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
