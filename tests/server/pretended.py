"""A pretended loop, sockets and the log of crashes, on a clock that tests move."""

from __future__ import annotations

import errno
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from heapq import heappop, heappush
from itertools import count
from math import inf
from select import epoll
from typing import Any


class Crashes(logging.Handler):
    """What the server puts down to a bug of its own, and goes on."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[BaseException] = []
        logging.getLogger("headway").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.found.append(record.exc_info[1])


CRASHES = Crashes()


class Timer:
    """Of the loop."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Task:
    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self.work = work
        self.done: list[Callable[[Task], object]] = []

    def add_done_callback(self, call: Callable[[Task], object]) -> None:
        self.done.append(call)


class Loop:
    """What the server asks of asyncio's. Tasks may be held back."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.hold_tasks = False
        self.reads = 0
        """How often somebody read."""
        self._readers: dict[Socket, Callable[[], object]] = {}
        self._writers: dict[Socket, Callable[[], object]] = {}
        self._soon: deque[Callable[[], object]] = deque()
        self._tasks: list[Task] = []
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = count()

    def add_reader(self, sock: Any, call: Callable[..., object], *args: Any) -> None:
        if not isinstance(sock, epoll):  # hang-ups are pretended
            self._readers[sock] = lambda: call(*args)

    def remove_reader(self, sock: Socket) -> None:
        self._readers.pop(sock, None)

    def add_writer(self, sock: Socket, call: Callable[..., object], *args: Any) -> None:
        self._writers[sock] = lambda: call(*args)

    def remove_writer(self, sock: Socket) -> None:
        self._writers.pop(sock, None)

    def call_soon(self, call: Callable[..., object], *args: Any) -> None:
        self._soon.append(lambda: call(*args))

    call_soon_threadsafe = call_soon

    def call_later(self, seconds: float, call: Callable[..., object], *args: Any) -> Timer:
        timer = Timer(lambda: call(*args))
        heappush(self._timers, (self.now + seconds, next(self._numbers), timer))
        return timer

    def create_task(self, work: Coroutine[Any, Any, None]) -> Task:
        self._tasks.append(Task(work))
        return self._tasks[-1]

    def once(self) -> bool:
        """Call whoever has something to do. False: nobody has."""
        ready = [self._soon.popleft() for _ in range(len(self._soon))]
        reading = [call for sock, call in self._readers.items() if sock.incoming or sock.shut]
        self.reads += len(reading)
        ready += reading
        ready += [call for sock, call in self._writers.items() if sock.writable]
        for call in ready:
            call()
        tasks, self._tasks = ([], self._tasks) if self.hold_tasks else (self._tasks, [])
        for task in tasks:
            self._finish(task)
        return bool(ready or tasks)

    def _finish(self, task: Task) -> None:
        """None of them waits for anything but other coroutines."""
        try:
            task.work.send(None)
        except StopIteration:
            for call in task.done:
                call(task)
        else:
            raise AssertionError("a task that waits")

    def due(self, upto: float) -> Iterator[Timer]:
        """Timers up to a time, at their times."""
        while self._timers and self._timers[0][0] <= upto:
            when, _, timer = heappop(self._timers)
            self.now = max(self.now, when)
            if not timer.cancelled:
                yield timer
        self.now = max(self.now, upto)


class Hangups:
    """What the kernel knows of sockets that are not read."""

    def __init__(self) -> None:
        self.calls: dict[Socket, Callable[[], None]] = {}

    def watch(self, sock: Socket, call: Callable[[], None]) -> None:
        self.calls[sock] = call

    def forget(self, sock: Socket) -> None:
        self.calls.pop(sock, None)

    def close(self) -> None: ...


class Socket:
    """The server's end. It takes ``capacity`` bytes that the client has not read."""

    def __init__(self) -> None:
        self.capacity: float = inf
        self.incoming: deque[bytes] = deque()
        """What each ``recv`` gets; an empty one is the client's end."""
        self.taken = bytearray()
        """What the client has not read."""
        self.shut = False
        """The server says no more."""
        self.closed = False
        self.late = bytearray()
        """What it tried to say after that."""

    @property
    def writable(self) -> bool:
        return len(self.taken) < self.capacity

    def getsockname(self) -> tuple[str, int]:
        raise OSError(errno.ENOTCONN, "no kernel knows it")

    def recv(self, most: int, flags: int = 0) -> bytes:
        if self.shut:  # whoever reads that far closes too
            return b""
        if not self.incoming:
            raise BlockingIOError
        if flags:
            return self.incoming[0][:most]
        data = self.incoming.popleft()
        if len(data) > most:
            self.incoming.appendleft(data[most:])
        return data[:most]

    def send(self, data: bytes | bytearray | memoryview, flags: int = 0) -> int:
        if self.shut or self.closed:
            self.late += data
            raise BrokenPipeError(errno.EPIPE, "it was shut")
        room = self.capacity - len(self.taken)
        if room <= 0:
            raise BlockingIOError
        part = bytes(data)[: int(min(room, len(data)))]
        self.taken += part
        return len(part)

    def sendmsg(self, views: list[bytes]) -> int:
        return self.send(b"".join(views))

    def getsockopt(self, level: int, option: int, size: int = 0) -> int:
        if size:
            raise OSError(errno.ENOPROTOOPT, "nothing is known of the far side")
        return 0

    def setsockopt(self, level: int, option: int, value: int) -> None: ...

    def shutdown(self, how: int) -> None:
        self.shut = True

    def close(self) -> None:
        self.shut = self.closed = True
