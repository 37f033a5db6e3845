"""The rights of users over HTTP. The right to read a filter is looked at while an answer goes on: a token may expire
meanwhile, and a reload may revoke it."""

from __future__ import annotations

from time import time as wall_s

from aiohttp import web

from headway.core.base import Reason, Refused
from headway.core.permission import Identity, Operation
from headway.server.engine import Engine
from headway.server.http import IDENTITY, refusal_for


def token_left_s(identity: Identity) -> float | None:
    """Returns the seconds for which the token counts by which a client came in; None: it came in without."""
    return None if identity.until_s is None else max(0.0, identity.until_s - wall_s())


def check_token(identity: Identity) -> None:
    """Raises Refused if the token by which a client came in has expired."""
    if token_left_s(identity) == 0.0:
        raise Refused(Reason.NOT_AUTHORIZED, "the token by which the client came in has expired")


def check_right(engine: Engine, request: web.Request, client: str, operation: Operation, *names: str) -> None:
    """Raises Refusal unless the user may do this, as this client, with all of these."""
    try:
        engine.permissions.check(request[IDENTITY], client, operation, *names)
    except Refused as refused:
        raise refusal_for(refused) from None


class ReadRight:
    def __init__(self, engine: Engine, identity: Identity, filter: str) -> None:
        """Raises Refused if the user may not read this."""
        self._permissions = engine.permissions
        self._identity = identity
        self._filter = filter
        self._ask()

    def check(self) -> None:
        """Raises Refused if the right has ended. Fast, unless there was a reload."""
        check_token(self._identity)
        if self._permissions.version != self._version:
            self._ask()

    def sees(self, filter: str) -> bool:
        """Tells whether the user may know figures about everything that a filter matches."""
        return self._permissions.rights(self._identity, "").sees(filter)

    def _ask(self) -> None:
        self._version = self._permissions.version
        self._permissions.check_user(self._identity)
        self._permissions.check(self._identity, "", Operation.SUBSCRIBE, self._filter)
