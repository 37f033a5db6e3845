"""A stage with permissions."""

from __future__ import annotations

from functools import partial

from tests.core.stage import Client, Stage

from headway.core.consumer.session import Session
from headway.core.permission import NOBODY, Denials, Permission, Permissions, Rights

EVERYTHING = Permission(publish=("#",), subscribe=("#",))


class Guarded:
    """A stage with permissions, which a test reloads."""

    def __init__(self, *rules: Permission, toml: str = "") -> None:
        self.stage = Stage(toml)
        self.denials = Denials()
        self.over: list[int] = []
        self.reload(*rules)
        self.stage.turn()

    def reload(self, *rules: Permission) -> None:
        """Puts permissions in force; what stands is judged in the turns that follow, and a part of it at once."""
        self.permissions = Permissions(rules, {}, self.denials)
        number = len(self.over) + 1
        self.stage.broker.set_permissions(self.rights_of, self.stage.now, partial(self.over.append, number))

    def rights_of(self, session: Session) -> Rights:
        return self.permissions.rights(NOBODY, session.client)

    def client(self, name: str, filters: int = 0, **how: float) -> Client:
        client = self.stage.client(name, expiry_s=how.get("expiry_s", 0.0))
        for number in range(filters):
            client.subscribe(f"t/{name}/{number}", 1)
        return client

    def turn(self) -> None:
        """One turn of the loop, and no more."""
        self.stage.broker.flush(self.stage.now)
        self.stage._carry_out()

    def finish(self) -> None:
        while self.stage.broker.has_work:
            self.turn()
