"""Logins: who a client is, from what it says. Each source is asked in turn until one knows.

Rules:
- A login that was right before is recognised at once (``known``), and does not wait for anything.
- A refusal takes at least ``REFUSED_S``, whether the user exists or not. A user that does not exist costs no check, so
  made-up names cost no time. (How long a refusal takes tells which users exist only while checks are queued up.)
- Addresses whose logins fail wait for turns (``guessers.py``), but for callers who were let in from there before.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from headway.server.config import Users
from headway.server.logins.guessers import WAIT_MAX_S, Guessers
from headway.server.logins.identity import Attempt, Identity, Refusal
from headway.server.logins.password_checks import Caller, PasswordChecks

log = logging.getLogger("headway")

REFUSED_S = 0.5
TRUSTED_MAX = 10_000
WRONG = Refusal("wrong user name or password")


class Logins:
    def __init__(self, users: Users, loop: asyncio.AbstractEventLoop) -> None:
        self.passwords = PasswordChecks(users, loop)
        self.failed: Counter[str] = Counter()
        """Logins that failed: ``wrong``; ``too_many``: not checked, because too many from that address had failed."""
        self._loop = loop
        self._guessers = Guessers()
        self._trusted: dict[Caller, None] = {}
        """Callers whose last login was right, the earliest first."""

    def close(self) -> None:
        self.passwords.close()

    def reload(self, users: Users) -> None:
        """Takes other users."""
        self.passwords.users = users

    @property
    def ask(self) -> bool:
        """Whether names are checked; if not, a name is only a label."""
        return bool(len(self.passwords.users))

    def has(self, name: str) -> bool:
        """Returns whether there is a user of this name."""
        return name in self.passwords.users

    def known(self, attempt: Attempt) -> Identity | None:
        """Returns who it is, if this very login was right before. Fast."""
        if self.passwords.users.remembers(attempt.name, attempt.password):
            return Identity(attempt.name)
        return None

    async def check(self, attempt: Attempt, wanted: Callable[[], bool]) -> Identity | Refusal:
        """Returns who it is. ``wanted`` says whether anybody still waits for the answer."""
        began_s = self._loop.time()
        caller = attempt.name, attempt.address
        if caller not in self._trusted:
            wait_s = self._guessers.turn(attempt.address, began_s)
            if wait_s > WAIT_MAX_S:
                self.failed["too_many"] += 1
                await asyncio.sleep(REFUSED_S)
                return Refusal(f"too many logins from this address have failed: try again in {wait_s:.0f} s")
            if wait_s:
                await asyncio.sleep(wait_s)
        found = await self._find(attempt, wanted)
        if isinstance(found, Identity):
            self._trust(caller)
            return found
        if wanted():
            self._distrust(caller)
        await asyncio.sleep(began_s + REFUSED_S - self._loop.time())
        return found

    async def _find(self, attempt: Attempt, wanted: Callable[[], bool]) -> Identity | Refusal:
        if await self.passwords.check(attempt.name, attempt.password, attempt.address, wanted):
            return Identity(attempt.name)
        return WRONG

    def _trust(self, caller: Caller) -> None:
        self._trusted.pop(caller, None)
        self._trusted[caller] = None
        if len(self._trusted) > TRUSTED_MAX:
            del self._trusted[next(iter(self._trusted))]

    def _distrust(self, caller: Caller) -> None:
        self.failed["wrong"] += 1
        self._trusted.pop(caller, None)
        if self._guessers.failed(caller[1], self._loop.time()):
            log.warning("logins from %s are slowed: too many have failed of late", caller[1])
