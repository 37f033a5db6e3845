"""Logins: who a client is, from what it says. Each source is asked in turn until one knows.

Rules:
- A login that was right before is recognised at once (``known``), and does not wait for anything.
- A refusal takes at least ``REFUSED_S``, whether the user exists or not. A user that does not exist costs no check, so
  made-up names cost no time. (How long a refusal takes tells which users exist only while checks are queued up.)
- Addresses whose logins fail wait for turns, but for callers who were let in from there before. Who
  needs no turn is asked again right before the check, so a thousand guesses at once are no better than one at a time.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from headway.core.base import ConfigError
from headway.core.permission import Identity
from headway.server.config import AuthTable, JwtTable, Users
from headway.server.logins.asking import Attempt, Refusal, Wanted
from headway.server.logins.hook import Hook
from headway.server.logins.scram import Scram, ScramError

if TYPE_CHECKING:
    from headway.server.logins.tokens import Tokens


# -- guessers ----------------------------------------------------------------------------------------------------------
#
# Guessers: addresses whose logins failed of late. Each further login from one has to wait for its turn.
#
# Theory of operation. A few failures are free, for people mistype. After those the turns of an address are apart, twice
# as far with each failure, up to ``TURN_MAX_S``. A login whose turn would come too late is refused without a check. So
# somebody who tries many names gets no further than somebody who tries one. An address is forgiven when none of its
# logins has failed for ``FORGIVEN_S``.
#
# Rules:
# - Of an IPv6 address, the network counts (64 bits): its owner has all the rest.
# - There are ``ADDRESSES_MAX`` addresses at most; the one that failed longest ago is forgotten for another.


FREE = 10
TURN_MIN_S = 0.5
TURN_MAX_S = 30.0
WAIT_MAX_S = 5.0
"""The longest time that a login waits for its turn; listeners give a client ten seconds by default."""
FORGIVEN_S = 300.0
ADDRESSES_MAX = 10_000


@dataclass(slots=True)
class _Record:
    failures: int
    failed_s: float
    """When the last login failed."""
    next_s: float
    """When the next turn is."""


class Guessers:
    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}
        """By network, the one that failed longest ago first."""

    def slows(self, address: str, now: float) -> bool:
        """Returns whether logins from an address have to wait for turns."""
        record = self._records.get(network_of(address))
        return record is not None and record.failures >= FREE and now - record.failed_s < FORGIVEN_S

    def turn(self, address: str, now: float) -> float:
        """Takes the next turn of an address. Returns the seconds until then; if these are more than ``WAIT_MAX_S``, the
        turn is not taken."""
        if not self.slows(address, now):
            return 0.0
        record = self._records[network_of(address)]
        begin_s = max(now, record.next_s)
        if begin_s - now <= WAIT_MAX_S:
            record.next_s = begin_s + _apart_s(record.failures)
        return begin_s - now

    def failed(self, address: str, now: float) -> bool:
        """Notes that a login failed. Returns whether this address has to wait from now on, and did not before."""
        network = network_of(address)
        record = self._records.pop(network, None)
        if record is None or now - record.failed_s >= FORGIVEN_S:
            record = _Record(0, now, now)
        self._records[network] = record
        record.failures += 1
        record.failed_s = now
        if record.failures >= FREE:
            record.next_s = max(record.next_s, now + _apart_s(record.failures))
        if len(self._records) > ADDRESSES_MAX:
            del self._records[next(iter(self._records))]
        return record.failures == FREE


def _apart_s(failures: int) -> float:
    """Returns the time between two turns."""
    return min(TURN_MAX_S, TURN_MIN_S * 2.0 ** min(16, failures - FREE))


def network_of(address: str) -> str:
    """Returns the part of an address that says whose it is."""
    try:
        ip = ipaddress.ip_address(address.strip("[]").partition("%")[0])
    except ValueError:
        return address
    if ip.version == 4:
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ipaddress.ip_network((int(ip) >> 64 << 64, 64)))


# -- password checks ---------------------------------------------------------------------------------------------------
#
# Password checks: whose password is checked next. A flood of wrong passwords must not keep the right ones waiting.
#
# Theory of operation. Logins wait for a check by *caller*: the user name together with the address it comes from. A
# caller whose last check failed is *suspect*. Suspects share one thread, take turns, and get it only while no other
# caller waits. So guessing slows down the guesser alone.
#
# Rules:
# - When a thousand clients come with one password, one is checked; the others are recognised when it is their turn,
#   some in each turn of the loop.
# - A client that is gone by its turn, or whose address has been slowed meanwhile, is passed over.


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


# -- logins ------------------------------------------------------------------------------------------------------------


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
