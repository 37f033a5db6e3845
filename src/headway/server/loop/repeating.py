"""Repeating: a callback that the loop makes again and again until it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Repeating:
    """The first call comes ``every_s`` after the start; each later one that long after the one before began."""

    __slots__ = ("_callback", "_every_s", "_loop", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, every_s: float, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._every_s = every_s
        self._callback = callback
        self._timer: asyncio.TimerHandle | None = None

    @property
    def running(self) -> bool:
        return self._timer is not None

    def start(self) -> None:
        """Does nothing while it is running."""
        if self._timer is None:
            self._timer = self._loop.call_later(self._every_s, self._run)

    def stop(self) -> None:
        """Does nothing unless it is running."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        self._timer = self._loop.call_later(self._every_s, self._run)
        self._callback()
