"""Handshakes: the TLS handshakes under way, how many each listener may have, and the thread that computes them.

Theory of operation. A handshake's arithmetic takes from a tenth of a millisecond to some milliseconds, which the loop
must not wait for. OpenSSL computes outside the interpreter's lock, so it is done in threads, one step of one handshake
at a time, and only when a whole record has come: a client that sends byte by byte costs the loop a ``recv`` each.

Rules:
- The loop's thread alone reads and writes sockets. It leaves a handshake alone while a step of it is computed.
- A listener has at most ``handshakes_max`` handshakes under way. One more ends the one that has waited longest for its
  client: those who never go on do not keep out those who do.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from headway.core.base import Reason

THREADS_MAX = 4


class Handshake(Protocol):
    """One handshake (tls_handshake.py)."""

    def give_up(self, reason: Reason, text: str) -> None: ...


class Handshakes:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        count = min(THREADS_MAX, max(1, (os.cpu_count() or 1) // 2))
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="headway-tls")
        self._waiting: dict[str, dict[Handshake, None]] = {}
        """Handshakes by their limit that wait for their clients; who waits longest is first."""
        self._computing: dict[str, int] = {}
        self.done = self.failed = 0

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values())) + sum(self._computing.values())

    def wait(self, handshake: Handshake, limit: str, most: int) -> None:
        """Notes that a handshake waits for its client. ``limit``: the name of the setting that says ``most``; each has
        handshakes of its own."""
        waiting = self._waiting.setdefault(limit, {})
        waiting[handshake] = None
        if len(waiting) + self._computing.get(limit, 0) > most:
            oldest = next(iter(waiting))
            text = (f"the client was the slowest of {most} TLS handshakes under way, and another client came "
                    f"({limit})")  # fmt: skip
            oldest.give_up(Reason.CONNECT_TIMEOUT, text)

    def leave(self, handshake: Handshake, limit: str) -> None:
        """Notes that a handshake does not wait any more."""
        self._waiting.get(limit, {}).pop(handshake, None)

    def compute(self, limit: str, step: Callable[[], None], then: Callable[[BaseException | None], None]) -> None:
        """Computes a step in a thread, then calls ``then`` on the loop, with the error if there was one."""
        self._computing[limit] = self._computing.get(limit, 0) + 1

        def finish(computed: asyncio.Future[None]) -> None:
            self._computing[limit] -= 1
            if not computed.cancelled():
                then(computed.exception())

        self.loop.run_in_executor(self._threads, step).add_done_callback(finish)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
