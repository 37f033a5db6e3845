"""Waiting for conditions. Nothing here or in the tests sleeps for a time that somebody guessed."""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")
PATIENCE_S = 60.0
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.005, 0.05
"""Between two looks. They get longer: whoever waits for seconds would keep a core busy with looking."""


def _pauses() -> Iterator[float]:
    pause = _FIRST_PAUSE_S
    while True:
        yield pause
        pause = min(1.2 * pause, _LAST_PAUSE_S)


def until(condition: Callable[[], T], seconds: float = PATIENCE_S, what: str | Callable[[], str] = "") -> T:
    """Ask again and again; the first answer that is true, or an AssertionError when the time is over. ``what`` is to
    hold; a function is called when it does not."""
    deadline = time.monotonic() + seconds
    nobody = threading.Event()
    for pause in _pauses():
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            said = what if isinstance(what, str) else what()
            raise AssertionError(
                f"after {seconds:g} s: {said or 'the condition'} still does not hold (last: {answer!r})"
            )
        nobody.wait(pause)
    raise AssertionError("there is always one more pause")


async def holds(condition: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Return once it does, on a loop that goes on meanwhile. TimeoutError when the time is over."""
    async with asyncio.timeout(seconds):
        for pause in _pauses():
            if condition():
                return
            await asyncio.sleep(pause)


def _readable(sock: socket.socket, seconds: float) -> bool:
    poll = select.poll()  # select knows no more than 1,024 files
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def received(sock: socket.socket, seconds: float) -> bytes | None:
    """What has come, waiting so long for it. None: nothing has; no bytes: nothing more can."""
    waiting = isinstance(sock, ssl.SSLSocket) and sock.pending()
    if not waiting and not _readable(sock, max(0.0, seconds)):
        return None
    try:
        return sock.recv(1 << 20)
    except (ConnectionError, ssl.SSLEOFError):
        return b""
