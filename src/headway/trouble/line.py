"""A line: one non-blocking socket to a broker, which is read when its user wants and as much as it wants.

Nothing is read ahead, so a user that reads nothing is a consumer that reads nothing.
"""

from __future__ import annotations

import asyncio
import ctypes
import select
import socket
import ssl
import struct

READ_BYTES = 262_144
SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27
NOTHING = struct.pack("HBBI", 0x06, 0, 0, 0)
"""A program of the kernel's packet filter: no packet passes."""
NO_BYTES_YET = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
ENDED = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR


class Gone(Exception):
    """The connection has ended; the text says how."""


class Line:
    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._out = bytearray()
        self._loop = asyncio.get_running_loop()
        self._writes = False
        self.more = False
        """The last ``take`` may have left something."""

    # -- reading ------------------------------------------------------------------------------------------------------

    def take(self, most: float = READ_BYTES) -> bytes:
        """Reads what is there, up to so many bytes. Raises Gone."""
        most = min(int(min(most, READ_BYTES)), READ_BYTES)
        self.more = False
        if most < 1:
            return b""
        try:
            data = self._sock.recv(most)
        except NO_BYTES_YET:
            return b""
        except OSError as error:
            raise Gone((error.strerror or str(error)).lower()) from None
        if not data:
            raise Gone("closed without a word")
        self.more = isinstance(self._sock, ssl.SSLSocket) and self._sock.pending() > 0
        return self._received(data)

    def _received(self, data: bytes) -> bytes:
        return data

    async def readable(self) -> None:
        """Returns when there is something to read."""
        if self.more:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(self._sock, _wake, woken)
        try:
            await woken
        finally:
            if self._sock.fileno() >= 0:
                self._loop.remove_reader(self._sock)

    @property
    def ended(self) -> bool:
        """The other side has ended the connection, as far as this machine's kernel was told; nothing is read."""
        poll = select.poll()
        poll.register(self._sock, ENDED)
        return bool(poll.poll(0))

    # -- writing ------------------------------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """The broker does not take what was written."""
        return bool(self._out)

    def write(self, data: bytes | bytearray) -> None:
        """Sends bytes, in order, when there is room for them. What goes wrong is told by the next ``take``."""
        self._out += data
        if not self._writes:
            self._send()

    def _send(self) -> None:
        try:
            while self._out:
                del self._out[: self._sock.send(self._out)]
        except NO_BYTES_YET:
            pass
        except OSError:
            self._out.clear()
        if bool(self._out) != self._writes:
            self._writes = not self._writes
            if self._writes:
                self._loop.add_writer(self._sock, self._send)
            else:
                self._loop.remove_writer(self._sock)

    # -- trouble ------------------------------------------------------------------------------------------------------

    def deafen(self) -> bool:
        """From now on no packet arrives: the host answers nothing any more. False: this system cannot do it."""
        held = ctypes.create_string_buffer(NOTHING)
        try:
            self._sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(held)))
        except OSError:
            return False
        return True

    def hear(self) -> None:
        """Ends ``deafen``."""
        self._sock.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)

    def reset(self) -> None:
        """Ends the connection as the kernel does for a process that was killed."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        if self._sock.fileno() < 0:
            return
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
