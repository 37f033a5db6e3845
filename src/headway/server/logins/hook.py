"""The hook: an HTTP service that is asked who may log in, as EMQX and RabbitMQ ask one.

Rules:
- Requests are made in threads of their own, so many at once as ``in_flight_max`` says; as many again may wait for one.
  One whose client is gone by then, or may not be checked any more, is not made.
- A service that does not answer in time, or not in a way that can be read, or that has too much to do, is *away*. It
  fails nobody's guess then: ``when_away`` decides.
- Only a login that was allowed is remembered, for ``cache_s``, as a keyed digest of everything that was sent.
- The password is sent to the service as it came. It follows no redirects, and no proxy of the environment.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections import Counter, OrderedDict
from http.client import HTTPException
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request

import msgspec

from headway.core.permission import Identity
from headway.server.config import HookTable
from headway.server.logins.asking import Attempt, Refusal, WaitingThreads, Wanted, fetch

log = logging.getLogger("headway")

ANSWER_BYTES_MAX = 64 * 1024
REMEMBERED_MAX = 10_000
GROUPS_MAX = 100
AWAY = Refusal("the service that checks logins does not answer: try again later", away=True)
DENIED = Refusal("wrong user name or password")


class _Away(Exception):
    """The service gave no answer that can be read."""


class _Unwanted(Exception):
    """The service was not asked."""


class _Answer(msgspec.Struct):
    """An answer of the service, in JSON. EMQX's services say nothing of groups."""

    result: str
    groups: list[str] = []


class _Remembered(NamedTuple):
    identity: Identity
    until_s: float


class Hook:
    def __init__(self, table: HookTable, loop: asyncio.AbstractEventLoop) -> None:
        self.table = table
        self.answers: Counter[str] = Counter()
        """Answers of the service: ``allow``, ``deny``, ``ignore``; ``away``: none that can be read."""
        self._loop = loop
        self._threads = WaitingThreads(table.in_flight_max, "headway-hook")
        self._in_flight = 0
        self._key = secrets.token_bytes(32)
        self._allowed: OrderedDict[bytes, _Remembered] = OrderedDict()
        self._was_away = False

    def close(self, *, cancel: bool = True) -> None:
        """Ends the threads; those who wait for an answer get it, unless ``cancel``."""
        self._threads.shutdown(cancel_futures=cancel)

    def remembers(self, attempt: Attempt) -> Identity | None:
        """Returns who it is, if this very login was allowed of late. Fast."""
        if not self._allowed:
            return None
        found = self._allowed.get(self._digest(attempt))
        return found.identity if found is not None and found.until_s > self._loop.time() else None

    async def ask(self, attempt: Attempt, wanted: Wanted) -> Identity | Refusal | None:
        """Returns what the service says; None: it does not know that user, or was not asked. A thread asks ``wanted``
        right before the request."""
        answer, why = None, "it has too much to do"
        if self._in_flight < 2 * self.table.in_flight_max:
            self._in_flight += 1
            asked = self._loop.run_in_executor(self._threads, _ask, self.table, attempt, wanted)
            asked.add_done_callback(self._done)
            try:
                answer = await asyncio.wait_for(asyncio.shield(asked), self.table.timeout_s)
            except TimeoutError:
                why = "it does not answer in time"
            except _Unwanted:
                return None
            except _Away as away:
                why = str(away)
        self.answers[answer.result if answer is not None else "away"] += 1
        self._tell(why if answer is None else "")
        if answer is None:
            return AWAY if self.table.when_away == "deny" else Identity(attempt.name, elsewhere=True)
        if answer.result == "ignore":
            return None
        if answer.result == "deny":
            return DENIED
        identity = Identity(attempt.name, tuple(answer.groups), elsewhere=True)
        self._remember(attempt, identity)
        return identity

    def _done(self, asked: asyncio.Future[_Answer]) -> None:
        self._in_flight -= 1
        if not asked.cancelled():
            asked.exception()  # it has been told already, or nobody waits for it any more

    def _remember(self, attempt: Attempt, identity: Identity) -> None:
        if not self.table.cache_s:
            return
        digest = self._digest(attempt)
        self._allowed.pop(digest, None)
        self._allowed[digest] = _Remembered(identity, self._loop.time() + self.table.cache_s)
        if len(self._allowed) > REMEMBERED_MAX:
            self._allowed.popitem(last=False)

    def _digest(self, attempt: Attempt) -> bytes:
        parts = (attempt.name.encode(), attempt.password, *(part.encode() for part in attempt[2:]))
        return hmac.digest(self._key, b"".join(len(part).to_bytes(4, "big") + part for part in parts), "sha256")

    def _tell(self, away: str) -> None:
        """Logs that the service is away, or is there again."""
        if bool(away) == self._was_away:
            return
        self._was_away = bool(away)
        url = self.table.url.partition("?")[0]  # a query may have a key in it, and logs go far
        if away:
            verdict = "refused" if self.table.when_away == "deny" else "allowed"
            log.error("auth.hook: %s: %s; logins that it would have to check are %s", url, away, verdict)
        else:
            log.info("auth.hook: %s answers again", url)


def _ask(table: HookTable, attempt: Attempt, wanted: Wanted) -> _Answer:
    """Asks the service, in a thread. Raises _Away, _Unwanted."""
    if not wanted():
        raise _Unwanted
    fields = {
        "username": attempt.name, "password": attempt.password.decode(errors="replace"), "clientid": attempt.client,
        "peerhost": attempt.address, "listener": attempt.listener,
    }  # fmt: skip
    if table.form == "json":
        body, kind = msgspec.json.encode(fields), "application/json"
    else:
        names = {"clientid": "client_id", "peerhost": "ip"}
        form = {names.get(name, name): value for name, value in fields.items()} | {"vhost": "/"}
        body, kind = urlencode(form).encode(), "application/x-www-form-urlencoded"
    request = Request(table.url, body, {"Content-Type": kind, "Accept": "application/json, text/plain"}, method="POST")
    if table.token is not None:
        request.add_header("Authorization", f"Bearer {table.token}")
    try:
        status, said = fetch(request, table.timeout_s, ANSWER_BYTES_MAX)
    except HTTPError as error:
        raise _Away(f"it answers with status {error.code}") from None
    except (OSError, ValueError) as error:
        raise _Away(f"it cannot be reached ({getattr(error, 'reason', error)})") from None
    except HTTPException as error:
        raise _Away(f"its answer cannot be read ({type(error).__name__})") from None
    if status == 204:
        return _Answer("allow")
    return _read(said)


def _read(said: bytes) -> _Answer:
    """Reads an answer: JSON with a ``result``, or the words ``allow GROUP ...``, ``deny``, ``ignore``. Raises
    _Away."""
    if len(said) > ANSWER_BYTES_MAX:
        raise _Away("its answer is too long")
    if said.lstrip().startswith(b"{"):
        try:
            answer = msgspec.json.decode(said, type=_Answer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _Away(f"its answer cannot be read ({error})") from None
    else:
        result, *groups = said.decode(errors="replace").split() or [""]
        answer = _Answer(result, groups)
    if answer.result not in ("allow", "deny", "ignore") or len(answer.groups) > GROUPS_MAX:
        raise _Away("its answer is none of allow, deny and ignore")
    return answer
