"""Password checks: whose password is checked next. A flood of wrong passwords must not keep the right ones waiting.

Theory of operation. Logins wait for a check by *caller*: the user name together with the address it comes from. A
caller whose last check failed is *suspect*. Suspects share one thread, take turns, and get it only while no other
caller waits. So guessing slows down the guesser alone.

Rules:
- When a thousand clients come with one password, one is checked; the others are recognised when it is their turn,
  some in each turn of the loop.
- A client that is gone by its turn, or whose address has been slowed meanwhile, is passed over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from headway.server.config import Users

CHECKS_AT_ONCE = 2
SUSPECTS_AT_ONCE = 1
ANSWERS_PER_TURN = 32
"""Tries that need no check are answered so many in a turn of the loop, for each answer lets a client in."""
SUSPECT_S = 60.0
SUSPECTS_MAX = 10_000

Caller = tuple[str, str]


class _Try(NamedTuple):
    caller: Caller
    password: bytes
    wanted: Callable[[], bool]
    answer: asyncio.Future[bool]


class PasswordChecks:
    def __init__(self, users: Users, loop: asyncio.AbstractEventLoop) -> None:
        self.users = users
        """Others after a reload."""
        self._loop = loop
        self._threads = ThreadPoolExecutor(CHECKS_AT_ONCE, thread_name_prefix="headway-password")
        self._waiting: deque[_Try] = deque()
        self._waiting_suspects: dict[Caller, deque[_Try]] = {}
        """Suspects that wait, in the order of their turns."""
        self._suspects: dict[Caller, float] = {}
        """When each suspect's last check failed, the earliest first."""
        self._running = self._running_suspects = 0
        self._goes_on = False
        """Whether there are more to be answered in the next turn."""

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def check(self, name: str, password: bytes, address: str, wanted: Callable[[], bool]) -> bool:
        """Returns whether the user exists and has this password. ``wanted`` says whether it is
        still to be checked."""
        if name not in self.users:
            return False
        one = _Try((name, address), password, wanted, self._loop.create_future())
        if self._suspected(one.caller):
            self._waiting_suspects.setdefault(one.caller, deque()).append(one)
        else:
            self._waiting.append(one)
        self._next()
        return await one.answer

    def _next(self) -> None:
        """Begins checks while there are free threads and callers that wait for one."""
        left = 0 if self._goes_on else ANSWERS_PER_TURN
        while self._running < CHECKS_AT_ONCE:
            if not left:
                self._go_on_soon()
                return
            left -= 1
            if self._waiting:
                one, suspect = self._waiting.popleft(), False
            elif self._waiting_suspects and self._running_suspects < SUSPECTS_AT_ONCE:
                one, suspect = self._next_suspect(), True
            else:
                return
            if one.answer.done():
                continue
            if self.users.remembers(one.caller[0], one.password):
                one.answer.set_result(True)
            elif not one.wanted():
                one.answer.set_result(False)
            elif not suspect and self._suspected(one.caller):  # it failed while this one waited
                self._waiting_suspects.setdefault(one.caller, deque()).append(one)
            else:
                self._begin(one, suspect)

    def _go_on_soon(self) -> None:
        if not self._goes_on:
            self._goes_on = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._goes_on = False
        self._next()

    def _next_suspect(self) -> _Try:
        caller = next(iter(self._waiting_suspects))
        tries = self._waiting_suspects.pop(caller)
        one = tries.popleft()
        if tries:
            self._waiting_suspects[caller] = tries
        return one

    def _begin(self, one: _Try, suspect: bool) -> None:
        self._running += 1
        self._running_suspects += suspect
        users = self.users
        check = self._loop.run_in_executor(self._threads, users.check, one.caller[0], one.password)
        check.add_done_callback(lambda done: self._done(one, suspect, users, done))

    def _done(self, one: _Try, suspect: bool, users: Users, done: asyncio.Future[bool]) -> None:
        self._running -= 1
        self._running_suspects -= suspect
        right = not done.cancelled() and done.exception() is None and done.result()
        self._suspects.pop(one.caller, None)
        if not right:
            self._suspects[one.caller] = self._loop.time()
            if len(self._suspects) > SUSPECTS_MAX:
                del self._suspects[next(iter(self._suspects))]
        if not one.answer.done():
            if (error := None if done.cancelled() else done.exception()) is not None:
                one.answer.set_exception(error)
            else:
                # A reload may have changed the password, or removed the user, meanwhile.
                one.answer.set_result(right and self.users.same(one.caller[0], users))
        self._go_on_soon()  # after the one who waited has noted the answer

    def _suspected(self, caller: Caller) -> bool:
        return self._loop.time() - self._suspects.get(caller, -SUSPECT_S) < SUSPECT_S
