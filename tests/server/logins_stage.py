"""A stage for logins: the loop's clock is the test's, and the test says when a check is done."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from headway.core.permission import Identity
from headway.server.config.auth import Users
from headway.server.config.auth.tables import AuthTable
from headway.server.logins import Attempt, Logins
from headway.server.logins.logins import REFUSED_S


class Checked(Users):
    """Everybody's password is its name."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(("ann", "bob", "carl", "dan"), "x"))

    def check(self, name: str, password: bytes) -> bool:
        if right := name.encode() == password:
            self._seen[name] = self._digest(name, password)
        return right


class Threads:
    """Each check is done when we say so, in the order in which they were begun."""

    def __init__(self) -> None:
        self.begun: list[tuple[Future[Any], Any, tuple[Any, ...]]] = []

    def submit(self, work: Any, *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.begun.append((future, work, args))
        return future

    @property
    def names(self) -> list[str]:
        return [args[0] for _, _, args in self.begun]

    def shutdown(self, **_: Any) -> None: ...


class Stage:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.logins = Logins(AuthTable(), loop)
        self.logins.passwords.users = Checked()
        self.logins.close()
        self.threads = self.logins.passwords._threads = Threads()  # type: ignore[assignment]
        self.tasks: list[asyncio.Task[bool]] = []

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def come(self, name: str, password: str, address: str = "here", *, there: bool = True) -> asyncio.Task[bool]:
        task = self.loop.create_task(self._is_let_in(Attempt(name, password.encode(), address), there))
        self.tasks.append(task)
        await self.settle()
        return task

    async def _is_let_in(self, attempt: Attempt, there: bool) -> bool:
        return isinstance(await self.logins.check(attempt, lambda: there), Identity)

    def reload(self, users: dict[str, str]) -> None:
        self.logins.reload(self.logins.prepared(AuthTable.model_construct(users=users)))

    async def done(self) -> str:
        """The check that was begun first is; whose it was."""
        future, work, args = self.threads.begun.pop(0)
        future.set_result(work(*args))
        await self.settle()
        return str(args[0])


def run(now: list[float], play: Any) -> None:
    class Loop(asyncio.SelectorEventLoop):
        def time(self) -> float:
            return now[0]

    with asyncio.Runner(loop_factory=Loop) as runner:
        loop = runner.get_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))

        async def whole() -> None:
            stage = Stage(loop)
            await play(stage)
            now[0] += REFUSED_S
            await stage.settle()
            for task in stage.tasks:
                task.cancel()

        runner.run(whole())


async def fail(stage: Stage, count: int, address: str = "there") -> None:
    for number in range(count):
        await stage.come(f"x{number}", "guess", address)
