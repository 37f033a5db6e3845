"""The collector: when Python looks for garbage, and how much of all there is it looks through.

Theory of operation. Nearly everything is let go of by counting references, for what is over leaves no cycle
(tests/server/test_left_behind.py). Python's collector is for cycles of others: tasks, exceptions, requests. To find
those that have grown old it looks through all objects there are; with a hundred thousand subscriptions that takes more
than a second, and nobody is served meanwhile. So what was looked through and is no garbage is *set aside*
(``gc.freeze``) and not looked through again: that is what it costs, once an object, however many there are.

Rules:
- The young generations are Python's own affair; they are small.
- The old one is collected here, when about ``PORTION`` objects have come since the last time, and what stays of it is
  set aside. That takes some 15 ms; the pulse puts it down to ``gc``.
- What was set aside is let go of by its references like everything else. A cycle that has come among it stays.
- This counts collections and not generations, so it holds for every Python from 3.11 on, whatever its generations are.
"""

from __future__ import annotations

import asyncio
import gc

from headway.server.loop.repeating import Repeating

PORTION = 20_000
LOOK_S = 0.1
NEVER = 2**31 - 1
"""The old generation is not collected but here. (A Python that has no such threshold does it in small steps.)"""


class Collector:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._looks = Repeating(loop, LOOK_S, self._look)
        self._thresholds = gc.get_threshold()
        self._passes = 0
        """Collections since the last time; each says that so many objects have come as the first threshold has it."""
        self._passes_max = max(1, PORTION // max(1, self._thresholds[0]))

    def start(self) -> None:
        gc.set_threshold(*self._thresholds[:2], NEVER)
        gc.callbacks.append(self._collected)
        self.set_aside()
        self._looks.start()

    def stop(self) -> None:
        if self._looks.running:
            self._looks.stop()
            gc.callbacks.remove(self._collected)
            gc.set_threshold(*self._thresholds)

    def _collected(self, phase: str, _: dict[str, int]) -> None:
        """In whatever thread: nothing is done here but counting."""
        if phase == "stop":
            self._passes += 1

    def _look(self) -> None:
        if self._passes >= self._passes_max:
            self.set_aside()

    def set_aside(self) -> None:
        """Find what is garbage of all that has come, and never ask the rest again."""
        gc.collect()
        gc.freeze()
        self._passes = 0
