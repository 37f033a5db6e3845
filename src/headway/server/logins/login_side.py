"""The login side of a peer: what checking who somebody is needs of its connection, whatever it speaks."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from headway.core.permission import Identity
    from headway.server.logins.attempt import Refusal

T = TypeVar("T")


class LoginSide(Protocol):
    identity: Identity

    @property
    def host(self) -> str: ...
    def check_password(
        self, username: str, password: bytes, done: Callable[[Refusal | None], None]
    ) -> None: ...
    def wait_for(self, answer: Coroutine[Any, Any, T], done: Callable[[T], None]) -> None: ...
    async def answer(self, answer: Coroutine[Any, Any, T], done: Callable[[T], None]) -> None: ...
    def take(self, found: Identity | Refusal) -> Refusal | None: ...
