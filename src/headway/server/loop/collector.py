"""The collector: when Python's garbage collector runs, and how many objects it traverses.

Theory of operation. Nearly all objects are freed by reference counting, because the broker's own objects leave no
cycles when they end (tests/server/test_left_behind.py). The garbage collector is needed for cycles of others: tasks,
exceptions, requests. A full collection traverses all objects. With a hundred thousand subscriptions that takes more
than a second, and no client is served meanwhile. So objects that survive a collection are *set aside* (``gc.freeze``)
and never traversed again. Each object is traversed about once, however many there are.

Rules:
- Python collects the young generations by itself; they are small.
- The old generation is collected here, when about ``PORTION`` objects have come since the last time. The survivors are
  set aside. That takes some 15 ms; the pulse attributes it to ``gc``.
- Objects that were set aside are still freed by reference counting. A cycle among them is never found.
- Python counts objects made less objects freed. Who replaces many objects that were set aside by as many others is not
  noticed, and all the others are traversed at once. So a reload must not do that (tests/core/test_reload.py).
- Collections are counted, not generations, so this works with every Python from 3.11 on.
"""

from __future__ import annotations

import asyncio
import gc

from headway.server.loop.repeating import Repeating

PORTION = 20_000
LOOK_S = 0.1
NEVER = 2**31 - 1
"""Threshold that keeps Python from collecting the old generation. (Versions without it collect in small steps.)"""


class Collector:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._looks = Repeating(loop, LOOK_S, self._look)
        self._thresholds = gc.get_threshold()
        self._passes = 0
        """Young collections since the last time. Each stands for as many new objects as the first threshold says."""
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
        """Counts young collections. May run in any thread."""
        if phase == "stop":
            self._passes += 1

    def _look(self) -> None:
        if self._passes >= self._passes_max:
            self.set_aside()

    def set_aside(self) -> None:
        """Collects garbage, and sets the survivors aside."""
        gc.collect()
        gc.freeze()
        self._passes = 0
