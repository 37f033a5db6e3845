"""HTTP bodies: request bodies within limits of size and time, JSON answers, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from headway.core.base import Reason, Refused

# -- transports --------------------------------------------------------------------------------------------------------
#
# Transports of requests: whether the client is still there, and how an answer is broken off.


def is_gone(request: web.Request) -> bool:
    """Returns whether the client has closed its connection."""
    return request.transport is None or request.transport.is_closing()


def unsent_bytes(request: web.Request) -> int:
    """Returns how much of an answer our kernel has not taken yet; nothing if the client is gone."""
    return 0 if request.transport is None else request.transport.get_write_buffer_size()


def abort(request: web.Request) -> None:
    """Resets the connection, so that the client does not take what was sent for the whole."""
    if request.transport is not None:
        request.transport.abort()


# -- bodies ------------------------------------------------------------------------------------------------------------


T = TypeVar("T")

BODY_BYTES_MAX = 256 * 1024
"""Bodies are in memory while they come, one for each connection, and no pool counts them."""
CHARSETS = ("utf-8", "utf8", "us-ascii", "ascii")
"""Others are refused: Python knows some that take hours for a body that anybody can send (punycode)."""
BODY_S = 10.0
"""Time for a body to arrive."""


class Refusal(Exception):
    """A refusal: a status and one line of text. Access control turns it into the answer (access.py)."""

    def __init__(self, status: int, text: str, headers: dict[str, str] | None = None, **more: Any) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers or {}
        self.more = more


def refusal_for(refused: Refused) -> Refusal:
    """Returns the answer to a request that the core refuses."""
    if refused.reason is Reason.NOT_AUTHORIZED:
        return Refusal(403, str(refused))
    if refused.retry_after_s:
        return Refusal(429, str(refused), retry_after_s=round(refused.retry_after_s, 3))
    return Refusal(400, str(refused))


async def read_body(request: web.Request, bytes_max: int = BODY_BYTES_MAX, seconds: float = BODY_S) -> bytearray:
    """Raises Refusal; ConnectionResetError if the client has left."""
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":  # a megabyte of it may be a gigabyte
        raise Refusal(415, f"bodies are taken as they are, not in the encoding {encoding[:40]!r}")
    too_large = Refusal(413, f"more than {bytes_max} bytes at once; hand over less at a time")
    if (request.content_length or 0) > bytes_max:
        raise too_large
    data = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for piece in request.content.iter_any():
                data += piece
                if len(data) > bytes_max:
                    raise too_large
    except TimeoutError:
        raise Refusal(408, f"the body did not arrive within {seconds:g} s") from None
    except (web.PayloadAccessError, web.RequestPayloadError):
        raise Refusal(400, "the body broke off, or has another encoding than it says") from None
    except RuntimeError:  # aiohttp's, where the client had left before the first look at its body
        if not is_gone(request):
            raise
        raise ConnectionResetError from None
    return data


def charset_of(request: web.Request) -> str:
    """Raises Refusal."""
    charset = request.charset or "utf-8"
    if charset.lower() not in CHARSETS:
        raise Refusal(400, f"the charset {charset[:40]!r} is not known here; send UTF-8")
    return charset


def text_of(raw: bytearray, charset: str) -> str:
    """Raises Refusal."""
    try:
        return raw.decode(charset)
    except UnicodeDecodeError as error:
        raise Refusal(400, f"the body is not text in {charset}: byte {error.start} is invalid") from None


async def read_json(request: web.Request, type: type[T]) -> T:
    """Raises Refusal."""
    try:
        return msgspec.json.decode(await read_body(request), type=type)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Refusal(400, str(error)) from None


def json_answer(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json", headers=headers)


# -- quota -------------------------------------------------------------------------------------------------------------
#
# Quotas: the cursors and writers that each user may have. They are limited because they pin records on disk.


class Quota:
    """A quota of one kind. ``there`` says whether a name still exists; it is asked only when a user is at the limit."""

    def __init__(self, most: int, setting: str, give_up: str, there: Callable[[str], bool]) -> None:
        self._most = most
        self._setting = setting
        self._give_up = give_up
        self._there = there
        self._users: dict[str, str] = {}
        """Owner of each name."""
        self._names: dict[str, dict[str, None]] = {}
        """Names of each user."""

    def restore(self, owned: Iterable[tuple[str, str]]) -> None:
        """Counts names and their users from before this process, even beyond the limit."""
        for name, user in owned:
            self._own(name, user)

    def take(self, name: str, user: str) -> None:
        """Counts a name as this user's. Raises Refusal."""
        if self._users.get(name) == user:
            return
        names = self._names.get(user, {})
        if len(names) >= self._most:
            for one in [one for one in names if not self._there(one)]:
                self.leave(one)
        if len(names) >= self._most:
            who = f"{user} has" if user else "there are"
            text = f"{who} {len(names)} already, and {self._setting} is {self._most}: {self._give_up} gives one up"
            raise Refusal(429, text)
        self.leave(name)
        self._own(name, user)

    def leave(self, name: str) -> None:
        user = self._users.pop(name, None)
        if user is not None:
            del self._names[user][name]

    def _own(self, name: str, user: str) -> None:
        self._users[name] = user
        self._names.setdefault(user, {})[name] = None
