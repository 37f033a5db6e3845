"""Logins: who a client is, from what it says. Each source is asked in turn until one knows.

Rules:
- A login that was right before is recognised at once (``known``), and does not wait for anything.
- A refusal takes at least ``REFUSED_S``, whether the user exists or not. A user that does not exist costs no check, so
  made-up names cost no time. (How long a refusal takes tells which users exist only while checks are queued up.)
- Addresses whose logins fail wait for turns (``guessers.py``), but for callers who were let in from there before. Who
  needs no turn is asked again right before the check, so a thousand guesses at once are no better than one at a time.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from headway.core.base import ConfigError
from headway.core.permission import Identity
from headway.server.config import AuthTable, JwtTable, Users
from headway.server.logins.attempt import Attempt, Refusal, Wanted
from headway.server.logins.guessers import WAIT_MAX_S, Guessers
from headway.server.logins.hook import Hook
from headway.server.logins.password_checks import Caller, PasswordChecks
from headway.server.logins.scram import Scram, ScramError

if TYPE_CHECKING:
    from headway.server.logins.tokens import Tokens

log = logging.getLogger("headway")

REFUSED_S = 0.5
TOKEN_BYTES_MAX = 16 * 1024
_TOKEN = re.compile(rb"eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
TRUSTED_MAX = 10_000
WRONG = Refusal("wrong user name or password")
FAULT = Refusal("the login could not be checked, by a fault of the broker: try again later", away=True)
TOO_MANY = "too many logins from this address have failed: try again"


class PreparedLogins(NamedTuple):
    """Logins by another config, that are not in force yet."""

    auth: AuthTable
    users: Users
    tokens: Tokens | None


class Logins:
    def __init__(self, auth: AuthTable, loop: asyncio.AbstractEventLoop) -> None:
        """Raises ConfigError if the keys of tokens cannot be used."""
        self.passwords = PasswordChecks(Users(auth.users), loop)
        self.hook = None if auth.hook is None else Hook(auth.hook, loop)
        self.tokens = _tokens(auth.jwt, loop)
        self.failed: Counter[str] = Counter()
        """Logins that failed: ``wrong``; ``away``: nobody was there to check it; ``fault``: the check itself failed;
        ``too_many``: not checked, because too many from that address had failed."""
        self._loop = loop
        self._guessers = Guessers()
        self._trusted: dict[Caller, None] = {}
        """Callers whose last login was right, the earliest first."""

    def close(self) -> None:
        self.passwords.close()
        if self.hook is not None:
            self.hook.close()
        if self.tokens is not None:
            self.tokens.close()

    def prepared(self, auth: AuthTable) -> PreparedLogins:
        """Returns what ``reload`` takes: users, of which those that are as before are still remembered, and keys of
        tokens. Slow: not for the loop's thread. Raises ConfigError if the keys cannot be used."""
        users = self.passwords.users
        return PreparedLogins(
            auth, users if auth.users == users.hashes else Users(auth.users, users), _tokens(auth.jwt, self._loop)
        )

    def reload(self, prepared: PreparedLogins) -> None:
        """Takes other users, tokens by other keys, and another hook."""
        auth = prepared.auth
        if self.tokens is not None:
            self.tokens.close(cancel=False)
        self.tokens, self.passwords.users = prepared.tokens, prepared.users
        old = self.hook
        if auth.hook != (None if old is None else old.table):
            self.hook = None if auth.hook is None else Hook(auth.hook, self._loop)
            if old is not None:
                old.close(cancel=False)

    @property
    def ask(self) -> bool:
        """Whether names are checked; if not, a name is only a label."""
        return bool(len(self.passwords.users)) or self.hook is not None or self.tokens is not None

    def is_token(self, password: bytes | None) -> bool:
        """Returns whether a password is to be read as a token."""
        if self.tokens is None or password is None or len(password) > TOKEN_BYTES_MAX:
            return False
        return _TOKEN.fullmatch(password) is not None

    def has(self, name: str) -> bool:
        """Returns whether there is a user of this name."""
        return name in self.passwords.users

    def known(self, attempt: Attempt) -> Identity | None:
        """Returns who it is, if this very login was right before. Fast."""
        if self.is_token(attempt.password):
            return None
        if self.passwords.users.remembers(attempt.name, attempt.password):
            return Identity(attempt.name)
        if self.hook is not None and attempt.name not in self.passwords.users:
            return self.hook.remembers(attempt)
        return None

    def scram(self) -> Scram | None:
        """Returns a new conversation by SCRAM; None: no user can log in by it."""
        return Scram(self.passwords.users) if self.passwords.users.by_scram else None

    async def check_proof(
        self, scram: Scram, message: bytes, address: str, wanted: Wanted
    ) -> tuple[Identity | Refusal, bytes]:
        """Returns who it is that ends a conversation by SCRAM with this message, and the answer to it."""
        answer = b""

        async def prove(_: Wanted) -> Identity | Refusal:
            nonlocal answer
            try:
                proved = scram.final(message)
            except ScramError as error:
                return Refusal(str(error))
            if not self.passwords.users.same(scram.name, scram.users):  # a reload came meanwhile
                return WRONG
            answer = proved
            return Identity(scram.name)

        found = await self._in_turn((scram.name, address), prove, wanted)
        return found, answer

    async def check(self, attempt: Attempt, wanted: Wanted) -> Identity | Refusal:
        """Returns who it is. ``wanted`` says whether anybody still waits for the answer."""
        # A token says nothing of the name beside it: who has one must not be trusted with that name's passwords.
        name = f"\0{attempt.name}" if self.is_token(attempt.password) else attempt.name
        return await self._in_turn((name, attempt.address), partial(self._find, attempt), wanted)

    async def _in_turn(
        self, caller: Caller, find: Callable[[Wanted], Awaitable[Identity | Refusal]], wanted: Wanted
    ) -> Identity | Refusal:
        """Returns what ``find`` finds, when it is the turn of the caller's address, and as late as a refusal has to
        be. ``find`` is told what to ask right before a check."""
        began_s, has_turn, overtaken = self._loop.time(), False, False
        if self._needs_turn(caller):
            wait_s = self._guessers.turn(caller[1], began_s)
            if wait_s > WAIT_MAX_S:
                self.failed["too_many"] += 1
                await asyncio.sleep(REFUSED_S)
                return Refusal(f"{TOO_MANY} in {wait_s:.0f} s")
            has_turn = True
            if wait_s:
                await asyncio.sleep(wait_s)

        def may_be_checked() -> bool:
            nonlocal overtaken
            overtaken = not has_turn and self._needs_turn(caller)
            return wanted() and not overtaken

        try:
            found = await find(may_be_checked)
        except Exception as error:  # noqa: BLE001  whoever waits for the answer is told
            log.error("a login of %r from %s could not be checked: %s: %s", *caller, type(error).__name__, error)
            found = FAULT
        if isinstance(found, Identity):
            self._trust(caller)
            return found
        if overtaken:
            self.failed["too_many"] += 1
            found = Refusal(f"{TOO_MANY} later")
        elif found is FAULT:
            self.failed["fault"] += 1
        elif found.away:
            self.failed["away"] += 1
        elif wanted():
            self._distrust(caller)
        await asyncio.sleep(began_s + REFUSED_S - self._loop.time())
        return found

    def _needs_turn(self, caller: Caller) -> bool:
        return caller not in self._trusted and self._guessers.slows(caller[1], self._loop.time())

    async def _find(self, attempt: Attempt, wanted: Wanted) -> Identity | Refusal:
        """Asks one source after the other. The config has the only word on its own users. What a source says that is in
        force no more, after a reload, does not count."""
        while True:
            tokens, hook = self.tokens, self.hook
            if tokens is not None and self.is_token(attempt.password):
                found: Identity | Refusal | None = await tokens.check(attempt)
                if self.tokens is tokens:
                    return found or WRONG
            elif attempt.name in self.passwords.users:
                right = await self.passwords.check(attempt.name, attempt.password, attempt.address, wanted)
                return Identity(attempt.name) if right else WRONG
            else:
                found = await hook.ask(attempt, wanted) if hook is not None else None
                if self.hook is hook:
                    return found or WRONG

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


def bad_keys(auth: AuthTable) -> list[str]:
    """Returns what is wrong with the file that has the keys of tokens, in one line; empty if it can be used."""
    if auth.jwt is None or auth.jwt.keys_file is None:
        return []
    from headway.server.logins.tokens import keys_of_file

    try:
        keys_of_file(auth.jwt.keys_file)
    except ConfigError as error:
        return [str(error)]
    return []


def _tokens(table: JwtTable | None, loop: asyncio.AbstractEventLoop) -> Tokens | None:
    """Returns what verifies tokens; None: there are none. Raises ConfigError."""
    if table is None:
        return None
    from headway.server.logins.tokens import Tokens  # only where it is used, for its libraries are large

    return Tokens(table, loop)
