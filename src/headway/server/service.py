"""The broker as a service: what the service manager is told of it.

The watchdog's messages are sent by the loop's own timer, three in its time. A loop that hangs sends none, and the
manager starts the broker anew; other threads cannot hide that. The first message comes when the broker is ready, so
reading a large journal at the start is not taken for a hang.
"""

from __future__ import annotations

import time

from headway.server.engine import Engine
from headway.server.loop import Repeating
from headway.server.systemd import NotifySocket

STATUS_EVERY_S = 5.0
PER_WATCHDOG = 3


class Service:
    def __init__(self, engine: Engine, notify: NotifySocket) -> None:
        self._engine = engine
        self._notify = notify
        self._remark = ""
        """The mistake in the config when it was last read; empty: there was none."""
        self._told = ""
        watchdog_s = notify.watchdog_s
        self._pings = None if watchdog_s is None else Repeating(engine.loop, watchdog_s / PER_WATCHDOG, self._ping)
        self._looks = Repeating(engine.loop, STATUS_EVERY_S, self._look)

    def ready(self) -> None:
        self._told = self._status()
        self._notify.tell("READY=1", f"STATUS={self._told}")
        if self._pings is not None:
            self._ping()
            self._pings.start()
        self._looks.start()

    def reloading(self) -> None:
        self._notify.tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}", "STATUS=reading the config")

    def reloaded(self, remark: str = "") -> None:
        """``remark``: why nothing was changed; empty: all went well."""
        self._remark = " ".join(remark.split())
        self._told = self._status()
        self._notify.tell("READY=1", f"STATUS={self._told}")

    def stopping(self) -> None:
        self._looks.stop()
        self._notify.tell("STOPPING=1", "STATUS=stopping")

    def close(self) -> None:
        if self._pings is not None:
            self._pings.stop()
        self._looks.stop()
        self._notify.close()

    def _ping(self) -> None:
        self._notify.tell("WATCHDOG=1")

    def _look(self) -> None:
        if (status := self._status()) != self._told:
            self._told = status
            self._notify.tell(f"STATUS={status}")

    def _status(self) -> str:
        engine = self._engine
        reasons = engine.readiness.reasons()
        words = [f"not ready: {reason}" for reason in reasons] or ["ready"]
        words.append(f"connections: {len(engine.connections)}, consumers behind: {len(engine.broker.registry.watched)}")
        if self._remark:
            words.append(f"the config was not read: {self._remark}")
        return "; ".join(words)
