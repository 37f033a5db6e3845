"""The company: the actors' processes, and what they report."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from demo.cast import Role
from demo.reports import ActorReport

CHECKOUT = Path(__file__).parent.parent
STOP_TIMEOUT_S = 10.0


class ActorFailed(Exception):
    """An actor could not do its part; the text says why."""


class Actor:
    """One actor's process, and its last reports, which a thread of its own reads."""

    def __init__(self, part: Role, module: str) -> None:
        self.part = part
        self.ready: ActorReport | None = None
        self.live = ActorReport("live")
        self.done: ActorReport | None = None
        self.failed = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"demo.actors.{module}", msgspec.json.encode(part).decode()],
            cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            report = msgspec.json.decode(line, type=ActorReport)
            if report.kind == "ready":
                self.ready = report
            elif report.kind == "live":
                self.live = report
            elif report.kind == "failed":
                self.failed = report.text
            else:
                self.live = self.done = report

    @property
    def last(self) -> ActorReport:
        return self.done or self.live

    @property
    def ended(self) -> bool:
        """Whether the actor has sent its last report."""
        return not self._reader.is_alive()

    def order(self, word: str) -> None:
        """``go`` or ``stop``. One that is gone needs no orders."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self.process.stdin.write(word + "\n")
            self.process.stdin.flush()

    def check(self) -> None:
        """Raise if it failed, or ended before its time."""
        if self.failed:
            raise ActorFailed(self.failed)
        if self.done is None and self.ended:
            raise ActorFailed(f"{self.part.name} ended by itself (exit {self.process.wait()})")


class Company:
    def __init__(self) -> None:
        self.actors: list[Actor] = []

    def hire(self, part: Role, module: str) -> Actor:
        actor = Actor(part, module)
        self.actors.append(actor)
        return actor

    def stop(self, actors: list[Actor]) -> None:
        """Have them stop, wait for their last reports; who does not stop is stopped."""
        for actor in actors:
            actor.order("stop")
        await_all(lambda: all(actor.ended for actor in actors), STOP_TIMEOUT_S)
        for actor in actors:
            if not actor.ended:
                actor.process.kill()
            actor.process.wait()

    def close(self) -> None:
        """Ends every actor, whatever happened."""
        self.stop(self.actors)


def await_all(ready: Callable[[], bool], timeout_s: float, each_turn: Callable[[], None] | None = None) -> bool:
    """Look again and again until ``ready``; False when it was not in time."""
    end = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > end:
            return False
        if each_turn is not None:
            each_turn()
        time.sleep(0.05)
    return True
