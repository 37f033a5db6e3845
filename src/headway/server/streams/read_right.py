"""The right to read a filter while an answer goes on: a token may expire meanwhile, and a reload may revoke it."""

from __future__ import annotations

from time import time as wall_s

from headway.core.base import Reason, Refused
from headway.core.permission import Identity, Operation
from headway.server.engine import Engine


class ReadRight:
    def __init__(self, engine: Engine, identity: Identity, filter: str) -> None:
        """Raises Refused if the user may not read this."""
        self._permissions = engine.permissions
        self._identity = identity
        self._filter = filter
        self._ask()

    def check(self) -> None:
        """Raises Refused if the right has ended. Fast, unless there was a reload."""
        until_s = self._identity.until_s
        if until_s is not None and wall_s() >= until_s:
            raise Refused(Reason.NOT_AUTHORIZED, "the token by which the client came in has expired")
        if self._permissions.version != self._version:
            self._ask()

    def _ask(self) -> None:
        self._version = self._permissions.version
        self._permissions.check_user(self._identity)
        rights = self._permissions.rights(self._identity, "")
        if rights is not None:
            rights.check(Operation.SUBSCRIBE, self._filter)
