"""The bare sender, the machine's limit: sends every byte of a publisher to every subscriber.

    python -m bench.sender PORT

No parsing, no matching, no records: what one ``recv`` gave is offered to each subscriber with one ``send``. Who does
not take all of it keeps its rest, up to ``WAITING_CHUNKS`` of them; then the publisher is not read until it caught up.
"""

from __future__ import annotations

import select
import socket
import sys
from collections import deque

from bench.wires.bare import SUBSCRIBE, SUBSCRIBED
from bench.wires.wire import HOST

READ_BYTES = 256 * 1024
SEND_BUFFER_BYTES = 256 * 1024
WAITING_CHUNKS = 8


class Sender:
    def __init__(self, port: int) -> None:
        self._listener = socket.create_server((HOST, port), backlog=4096)
        self._poll = select.epoll()
        self._poll.register(self._listener, select.EPOLLIN)
        self._publishers: dict[int, socket.socket] = {}
        self._subscribers: dict[int, socket.socket] = {}
        self._waiting: dict[int, deque[memoryview]] = {}
        self._full: set[int] = set()

    def serve(self) -> None:
        listener = self._listener.fileno()
        while True:
            for fd, _ in self._poll.poll():
                if fd == listener:
                    self._accept()
                elif fd in self._subscribers:
                    self._catch_up(fd)
                elif fd in self._publishers:
                    self._read(fd)

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self._publishers[sock.fileno()] = sock
        self._poll.register(sock, select.EPOLLIN)

    def _read(self, fd: int) -> None:
        try:
            data = self._publishers[fd].recv(READ_BYTES)
        except ConnectionError:
            data = b""
        except BlockingIOError:
            return
        if data == SUBSCRIBE:
            self._subscribers[fd] = self._publishers.pop(fd)
            self._subscribers[fd].send(SUBSCRIBED)
            self._poll.modify(fd, 0)
        elif data:
            self._offer(data)
        else:
            self._poll.unregister(fd)
            self._publishers.pop(fd).close()

    def _offer(self, data: bytes) -> None:
        whole, waiting = len(data), self._waiting
        gone = []
        for fd, sock in self._subscribers.items():
            if fd in waiting:
                waiting[fd].append(memoryview(data))
                if len(waiting[fd]) == WAITING_CHUNKS:
                    self._hold(fd)
                continue
            try:
                sent = sock.send(data)
            except BlockingIOError:
                sent = 0
            except ConnectionError:
                gone.append(fd)
                continue
            if sent < whole:
                waiting[fd] = deque([memoryview(data)[sent:]])
                self._poll.modify(fd, select.EPOLLOUT)
        for fd in gone:
            self._drop(fd)

    def _catch_up(self, fd: int) -> None:
        waiting = self._waiting.get(fd)
        try:
            while waiting:
                chunk = waiting[0]
                sent = self._subscribers[fd].send(chunk)
                if sent < len(chunk):
                    waiting[0] = chunk[sent:]
                    break
                waiting.popleft()
        except BlockingIOError:
            pass
        except ConnectionError:
            self._drop(fd)
            return
        if waiting is None:
            self._drop(fd)
            return
        if not waiting:
            del self._waiting[fd]
            self._poll.modify(fd, 0)
        if fd in self._full and len(waiting) < WAITING_CHUNKS // 2:
            self._release(fd)

    def _hold(self, fd: int) -> None:
        if not self._full:
            for publisher in self._publishers:
                self._poll.modify(publisher, 0)
        self._full.add(fd)

    def _release(self, fd: int) -> None:
        self._full.discard(fd)
        if not self._full:
            for publisher in self._publishers:
                self._poll.modify(publisher, select.EPOLLIN)

    def _drop(self, fd: int) -> None:
        self._poll.unregister(fd)
        self._subscribers.pop(fd).close()
        self._waiting.pop(fd, None)
        if fd in self._full:
            self._release(fd)


if __name__ == "__main__":
    Sender(int(sys.argv[1])).serve()
