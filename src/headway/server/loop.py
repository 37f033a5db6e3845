"""The event loop: its lateness, repeated callbacks, garbage collection, and figures of the process."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import shutil
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Coroutine, Generator
from pathlib import Path
from typing import Any

# -- descriptors -------------------------------------------------------------------------------------------------------
#
# Descriptors: how many files and sockets this process may have open, and which of them clients do not get.
#
# The kernel gives each new file the lowest number that is free. So the number of a new socket tells that all below it
# are in use, and nothing has to be counted: clients get the numbers below ``descriptors_for_clients``. The rest is for
# the admin API, the journal, the spill and certificates, so an operator gets an answer however many clients come.


KEPT_BACK = 64
SHARE_KEPT_BACK = 4
"""At most one descriptor in so many is kept back."""


def raise_file_limit() -> int:
    """Raises the limit of open files as far as the operating system allows; returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def descriptors_for_clients() -> int:
    """Returns the number from which on descriptors are not for clients."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return sys.maxsize
    return soft - min(KEPT_BACK, soft // SHARE_KEPT_BACK)


def lowest_free_descriptor() -> int:
    """Returns the number that the next file would have. Raises OSError if there is none."""
    number = os.open(os.devnull, os.O_RDONLY)
    os.close(number)
    return number


# -- process -----------------------------------------------------------------------------------------------------------
#
# Facts about this process from the operating system, and its command line.


_STATUS = Path("/proc/self/status")


def _status_bytes(field: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0


def memory_rss_bytes() -> int:
    """Returns the resident memory now."""
    return _status_bytes("VmRSS:")


def memory_peak_bytes() -> int:
    """Returns the highest resident memory so far."""
    return _status_bytes("VmHWM:")


def called_as() -> list[str]:
    """Returns the command that starts this program again, from the same place."""
    program = Path(sys.argv[0])
    if program.name != "headway":
        return [sys.executable, "-m", "headway"]
    found = shutil.which("headway")
    return ["headway" if found is not None and Path(found).resolve() == program.resolve() else sys.argv[0]]


# -- pulse -------------------------------------------------------------------------------------------------------------
#
# The pulse: how late the event loop is, and what made it late. This is the delay that clients feel.
#
# Theory of operation. A timer, the probe, is due every ``PROBE_S``. If it comes late, everything that arrived meanwhile
# had to wait as long. Each of the broker's callbacks reports its kind and duration. Lateness is attributed to the
# causes that ran since the last probe, in proportion, and the rest to ``other``: code that does not report, or a
# machine without time for this process.
#
# Rules:
# - A callback costs two clock readings. Nothing is measured per message.
# - Garbage collection is a cause of its own, and is not counted as part of the callback that it interrupted.
# - The governor judges no consumer while the loop is late.


log = logging.getLogger("headway")

PROBE_S = 0.02
LEAST_S = 0.002
"""Lateness below this is noise of the timer."""
SAID_FROM_S = 0.1
SAID_EVERY_S = 10.0
LATELY_S = 60.0
BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
CAUSES = ("read", "write", "accept", "turn", "tick", "sweep", "spill", "journal", "admin", "gc", "trim", "other")
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


# -- repeating ---------------------------------------------------------------------------------------------------------
#
# Repeating: a callback that the loop makes again and again until it is stopped.


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


# -- collector ---------------------------------------------------------------------------------------------------------
#
# The collector: when Python's garbage collector runs, and how many objects it traverses.
#
# Theory of operation. Nearly all objects are freed by reference counting, because the broker's own objects leave no
# cycles when they end (tests/server/test_left_behind.py). The garbage collector is needed for cycles of others: tasks,
# exceptions, requests. A full collection traverses all objects. With a hundred thousand subscriptions that takes more
# than a second, and no client is served meanwhile. So objects that survive a collection are *set aside* (``gc.freeze``)
# and never traversed again. Each object is traversed about once, however many there are.
#
# Rules:
# - Python collects the young generations by itself; they are small.
# - The old generation is collected here, when about ``PORTION`` objects have come since the last time. The survivors
# are
#   set aside. That takes some 15 ms; the pulse attributes it to ``gc``.
# - Objects that were set aside are still freed by reference counting. A cycle among them is never found.
# - Python counts objects made less objects freed. Who replaces many objects that were set aside by as many others is
# not
#   noticed, and all the others are traversed at once. So a reload must not do that (tests/core/test_reload.py).
# - Collections are counted, not generations, so this works with every Python from 3.11 on.


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


# -- free memory -------------------------------------------------------------------------------------------------------
#
# Free memory goes back to the operating system. The C library keeps what Python has freed, as long as anything behind
# it in its heap is in use: after a storm of clients that have left, hundreds of megabytes. ``malloc_trim`` (glibc)
# gives whole pages back. It takes a third of a millisecond for each megabyte, while nobody is served, so it is called
# only if much has come back: what the pools count has fallen by ``TRIM_BYTES`` since the last time, or the process has
# grown by as much and has stopped growing. (Rejected: a fixed M_MMAP_THRESHOLD, so that chunks are memory of their own:
# two system calls for each, and what is smaller stays all the same.)


TRIM_BYTES = 24 * 1024 * 1024
TRIM_LOOK_S = 2.0
TRIM_EVERY_S = 20.0


def _malloc_trim() -> None:
    import ctypes  # not at the start: it takes 5 ms, and few brokers ever need it

    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


class FreeMemory:
    def __init__(self, loop: asyncio.AbstractEventLoop, used_bytes: Callable[[], int], pulse: Pulse) -> None:
        """``used_bytes`` tells what the pools count."""
        self._looks = Repeating(loop, TRIM_LOOK_S, self._look)
        self._loop = loop
        self._used_bytes = used_bytes
        self._pulse = pulse
        self._most_used_bytes = 0
        """The most that was counted since the last time."""
        self._rss_bytes = self._last_rss_bytes = 0
        """The resident memory after the last time, and at the last look."""
        self._trimmed_s = -TRIM_EVERY_S

    def start(self) -> None:
        self._rss_bytes = memory_rss_bytes()
        self._looks.start()

    def stop(self) -> None:
        self._looks.stop()

    def _look(self) -> None:
        used, rss, now = self._used_bytes(), memory_rss_bytes(), self._loop.time()
        self._most_used_bytes = max(self._most_used_bytes, used)
        grown = rss - self._rss_bytes >= TRIM_BYTES and rss - self._last_rss_bytes < TRIM_BYTES // 8
        self._last_rss_bytes = rss
        if now - self._trimmed_s >= TRIM_EVERY_S and (grown or self._most_used_bytes - used >= TRIM_BYTES):
            began = self._pulse.begin()
            _malloc_trim()
            self._pulse.end("trim", began)
            self._trimmed_s, self._most_used_bytes, self._rss_bytes = now, used, memory_rss_bytes()
