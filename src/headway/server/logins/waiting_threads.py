"""Threads for calls that wait for somebody else: a service that may never answer.

A process that ends joins the threads of a ``ThreadPoolExecutor``, however long their calls still take. These it leaves
behind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class WaitingThreads(Executor):
    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        """Calls that wait for a thread; None: there are no more."""
        self._futures: dict[Future[Any], None] = {}
        """The results that nobody works at yet."""
        self._idle = threading.Semaphore(0)
        self._threads = 0
        self._abandoned = False
        """Set when nobody waits for results any more."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Only from one thread."""
        future: Future[T] = Future()
        self._futures[future] = None

        def call() -> None:
            self._futures.pop(future, None)
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except Exception as error:  # noqa: BLE001  it is that of who waits for the result
                if not self._abandoned:
                    future.set_exception(error)
            else:
                if not self._abandoned:
                    future.set_result(result)

        self._calls.put(call)
        if not self._idle.acquire(blocking=False) and self._threads < self._most:
            self._threads += 1
            threading.Thread(target=self._work, name=f"{self._name}_{self._threads}", daemon=True).start()
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:
        """Ends the threads after the calls that were made; ``cancel_futures``: after those under way, whose results are
        dropped. Waits for none."""
        self._abandoned = cancel_futures
        if cancel_futures:
            for future in list(self._futures):
                future.cancel()
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._next()) is not None:
            call()
        self._calls.put(None)  # for the next thread

    def _next(self) -> Callable[[], None] | None:
        try:
            return self._calls.get_nowait()
        except Empty:
            self._idle.release()
            return self._calls.get()
