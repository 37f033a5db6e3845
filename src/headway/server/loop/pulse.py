"""The pulse: how late the event loop is, and what made it late. This is the delay that clients feel.

Theory of operation. A timer, the probe, is due every ``PROBE_S``. If it comes late, everything that arrived meanwhile
had to wait as long. Each of the broker's callbacks reports its kind and duration. Lateness is
attributed to the causes that ran since the last probe, in proportion, and the rest to ``other``: code that does not
report, or a machine without time for this process.

Rules:
- A callback costs two clock readings. Nothing is measured per message.
- Garbage collection is a cause of its own, and is not counted as part of the callback that it interrupted.
- The governor judges no consumer while the loop is late.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Coroutine, Generator
from typing import Any

log = logging.getLogger("headway")

PROBE_S = 0.02
LEAST_S = 0.002
"""Lateness below this is noise of the timer."""
SAID_FROM_S = 0.1
SAID_EVERY_S = 10.0
LATELY_S = 60.0
BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
CAUSES = ("read", "write", "accept", "turn", "tick", "sweep", "spill", "journal", "admin", "gc", "other")
"""Causes: receiving and decoding; sockets that take bytes again; new connections; the flush; the governor and pressure;
looking for who is silent; answers of the spill's writer; answers of the journal's; a request to the admin API."""


class Pulse:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.late_s = dict.fromkeys(CAUSES, 0.0)
        self.longest_s = 0.0
        self.longest_words = ""
        self.counts = [0] * (len(BOUNDS_S) + 1)
        """Number of probes by lateness, one for each of ``BOUNDS_S`` and one beyond."""
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._taken = dict.fromkeys(CAUSES, 0.0)
        """Time that each cause took since the last probe."""
        self._worst: tuple[str, object] = "", None
        self._worst_s = 0.0
        """The longest callback since the last probe: its cause and its subject; below, its duration."""
        self.begin = clock
        """Returns the time at which a callback begins."""
        self._collected: list[tuple[float, float]] = []
        """Garbage collections since the last callback ended: begin and duration."""
        self._gc_began_s = 0.0
        self._lately = [0.0, 0.0]
        """Longest lateness of this minute, and of the last."""
        self._minute_s = clock()
        self._held_s = 0.0
        self._said_s = -SAID_EVERY_S
        self._unsaid = 0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        gc.callbacks.append(self._collecting)
        self._next()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            gc.callbacks.remove(self._collecting)

    # -- reports of callbacks ---------------------------------------------------------------------------------------

    def end(self, cause: str, began_s: float, who: object = None) -> float:
        """Reports the end of a callback about ``who``. Returns the time."""
        ended_s = self._clock()
        took_s = ended_s - began_s
        if self._collected:
            took_s -= sum(gc_s for gc_began_s, gc_s in self._collected if gc_began_s >= began_s)
            self._collected.clear()
        self._taken[cause] += took_s
        if took_s > self._worst_s:
            self._worst_s, self._worst = took_s, (cause, who)
        return ended_s

    def steps(self, cause: str, work: Coroutine[Any, Any, Any], who: object = None) -> _Steps:
        """Wraps a coroutine, so that each of its steps between two waits is reported as a callback."""
        return _Steps(self, cause, work, who)

    def _collecting(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._gc_began_s = self._clock()
            return
        took_s = self._clock() - self._gc_began_s
        self._collected.append((self._gc_began_s, took_s))
        self._taken["gc"] += took_s
        if took_s > self._worst_s:
            self._worst_s, self._worst = took_s, ("gc", None)

    # -- the probe --------------------------------------------------------------------------------------------------

    def _next(self) -> None:
        assert self._loop is not None
        self._due_s = self._clock() + PROBE_S
        self._timer = self._loop.call_later(PROBE_S, self._probe)

    def _probe(self) -> None:
        self.look()
        self._next()

    def look(self) -> None:
        """Takes the lateness of the probe that is due."""
        now = self._clock()
        late_s = max(0.0, now - self._due_s)
        self.counts[bisect_left(BOUNDS_S, late_s)] += 1
        if now - self._minute_s >= LATELY_S:
            self._lately = [0.0, self._lately[0] if now - self._minute_s < 2 * LATELY_S else 0.0]
            self._minute_s = now
        if late_s >= LEAST_S:
            self._late(late_s, now)
        self._taken = dict.fromkeys(CAUSES, 0.0)
        self._worst_s, self._worst = 0.0, ("", None)

    def _late(self, late_s: float, now: float) -> None:
        shares = self._shares(late_s)
        for cause, share_s in shares.items():
            self.late_s[cause] += share_s
        self._held_s = max(self._held_s, late_s)
        self._lately[0] = max(self._lately[0], late_s)
        if late_s > self.longest_s:
            self.longest_s, self.longest_words = late_s, self._words(shares)
        if late_s < SAID_FROM_S:
            return
        self._unsaid += 1
        if now - self._said_s >= SAID_EVERY_S:
            more = f" (the last of {self._unsaid} times)" if self._unsaid > 1 else ""
            fields = {"late_ms": round(late_s * 1000), "cause": max(shares, key=shares.__getitem__, default=None)}
            log.warning("the loop was late by %.0f ms: %s%s", late_s * 1000, self._words(shares), more,
                        extra={"fields": fields})  # fmt: skip
            self._said_s, self._unsaid = now, 0

    def _shares(self, late_s: float) -> dict[str, float]:
        """Splits lateness by cause."""
        known_s = sum(self._taken.values())
        part = min(1.0, late_s / known_s) if known_s else 0.0
        shares = {cause: taken_s * part for cause, taken_s in self._taken.items() if taken_s}
        if known_s < late_s:
            shares["other"] = shares.get("other", 0.0) + late_s - known_s
        return shares

    def _words(self, shares: dict[str, float]) -> str:
        """Returns a text such as ``read 1,700 ms, turn 200 ms; the longest was read of display-7, 1,690 ms``."""
        order = sorted(shares, key=shares.__getitem__, reverse=True)
        words = ", ".join(f"{cause} {shares[cause] * 1000:,.0f} ms" for cause in order if shares[cause] >= 0.001)
        cause, who = self._worst
        longest = f"; the longest was {cause} of {who}, {self._worst_s * 1000:,.0f} ms" if who is not None else ""
        return words + longest

    # -- figures ----------------------------------------------------------------------------------------------------

    def held_s(self) -> float:
        """Returns the longest lateness since the last call. An overdue probe counts, once."""
        if self._due_s and self._clock() > self._due_s:
            self.look()
            self._due_s = self._clock()
        held_s, self._held_s = self._held_s, 0.0
        return held_s

    @property
    def lately_s(self) -> float:
        """Longest lateness in the last minute or two."""
        return max(self._lately)


class _Steps:
    __slots__ = ("_cause", "_pulse", "_who", "_work")

    def __init__(self, pulse: Pulse, cause: str, work: Coroutine[Any, Any, Any], who: object) -> None:
        self._pulse = pulse
        self._cause = cause
        self._work = work
        self._who = who

    def __await__(self) -> Generator[Any, Any, Any]:
        pulse, work = self._pulse, self._work
        error: BaseException | None = None
        sent: Any = None
        while True:
            began_s = pulse.begin()
            try:
                waited = work.send(sent) if error is None else work.throw(error)
            except StopIteration as done:
                return done.value
            finally:
                pulse.end(self._cause, began_s, self._who)
            error = None
            try:
                sent = yield waited
            except BaseException as thrown:  # noqa: BLE001  cancellation, too, is for the work to handle
                error = thrown
