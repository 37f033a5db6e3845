"""A TLS stream: one connection's cipher. Lanes are shared up to here; from here on, each client has bytes of its own.

Theory of operation. OpenSSL works on two buffers in memory, not on the socket, so that this file decides what is read
and written, and when:

- In: what one ``recv`` brings is deciphered at once, so that no whole record waits. Only the part of a record stays.
- Out: bytes are enciphered only when the kernel has taken all that was enciphered before, in records of
  ``RECORD_BYTES``. Several records go out with one call while the kernel has room for them. What it does not take after
  all is ``unsent``: a record as a rule, ``BATCH_BYTES`` at most.
- OpenSSL's buffers keep the largest size that they ever had, so they are filled with a record at a time.

The handshake comes first (tls_handshake.py). There is no renegotiation (config/tls/certificates.py), and a client that
asks for new keys again and again is disconnected. So writing never waits for reading.
"""

from __future__ import annotations

import fcntl
import socket
import ssl
import struct
import termios
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress

from headway.core.base import Reason
from headway.core.log import SpillHandle
from headway.server.transport.byte_stream import Buffer, ByteStream, Opening, StreamError, lost, send_pieces
from headway.server.transport.tls_handshake import TlsHandshake, worded

# -- tls records -------------------------------------------------------------------------------------------------------
#
# Records of TLS: what goes into each. However little that is, it costs a call of the cipher, and 22 bytes or more.


RECORD_BYTES = 16 * 1024
"""The most that a record has."""
PORTION_BYTES = 4 * 1024


def contents(views: Sequence[Buffer]) -> Iterator[Buffer]:
    """Yields what goes into each record. All are full but the last, also where a view ends: the header of a frame takes
    up no record of its own."""
    begun: list[Buffer] = []
    begun_bytes = 0
    for view in views:
        whole, at = memoryview(view), 0
        if begun:
            at = min(len(whole), RECORD_BYTES - begun_bytes)
            begun.append(whole[:at])
            begun_bytes += at
            if begun_bytes < RECORD_BYTES:
                continue
            yield b"".join(begun)
            begun = []
        end = len(whole) - (len(whole) - at) % RECORD_BYTES
        for start in range(at, end, RECORD_BYTES):
            yield whole[start : start + RECORD_BYTES]
        if end < len(whole):
            begun.append(whole[end:])
            begun_bytes = len(whole) - end
    if begun:
        yield b"".join(begun) if len(begun) > 1 else begun[0]


# -- wire marks --------------------------------------------------------------------------------------------------------
#
# Wire marks: how bytes on the wire, which the kernel counts, compare with those that were given to be sent.


MARKS_MAX = 32
MARK_BYTES = 16 * 1024


class WireMarks:
    """Both counts at some earlier times. In between they are taken to grow in proportion."""

    __slots__ = ("_marks", "_plain_bytes")

    def __init__(self, wire_bytes: int) -> None:
        """``wire_bytes``: those before the first byte that is given to be sent."""
        self._plain_bytes = 0
        self._marks = deque([(wire_bytes, 0)], MARKS_MAX)
        """(bytes on the wire, bytes given), the earliest first."""

    def note(self, wire_bytes: int, given_bytes: int) -> None:
        """Notes that so many bytes more were given, and how many have been made for the wire so far."""
        self._plain_bytes += given_bytes
        if wire_bytes - self._marks[-1][0] >= MARK_BYTES:
            self._marks.append((wire_bytes, self._plain_bytes))

    def plain_of(self, wire_bytes: int, wire_bytes_max: int) -> int:
        """Returns how many of the bytes given are among the first ``wire_bytes``. ``wire_bytes_max``: all so far. Asked
        with numbers that grow: marks that are passed are dropped."""
        marks = self._marks
        while len(marks) > 1 and marks[1][0] <= wire_bytes:
            marks.popleft()
        wire, plain = marks[0]
        if wire_bytes <= wire:
            return max(0, plain - (wire - wire_bytes))
        wire_next, plain_next = marks[1] if len(marks) > 1 else (wire_bytes_max, self._plain_bytes)
        if wire_next <= wire:
            return plain
        return plain + (min(wire_bytes, wire_next) - wire) * (plain_next - plain) // (wire_next - wire)


# -- tls stream --------------------------------------------------------------------------------------------------------


BATCH_BYTES = 64 * 1024
SMALL_RECORD_BYTES = 4 * 1024
"""Size of records while small pieces are sent, which a client is to be able to read soon."""
FILE_BYTES = 256 * 1024
"""The most that one call sends of a file."""
ANSWER_BYTES_MAX = 16 * 1024
"""A client that has so many unread answers to its wishes for new keys is disconnected."""
FIRST_BYTES = 1024
FEW_RECORDS = 8
"""So much is deciphered at first, and from then on if there were more records in it, before it is looked what was in
them."""
SILENT_RECORDS_MAX = 64
"""A client that has sent so many records without content is disconnected. Who goes by the rules asks for new keys once
in very many records, so each of these makes up for a part of one: ``MAKES_UP``."""
MAKES_UP = 16
_HEADER_BYTES = 5
_NO_ROOM = struct.pack("i", 0)


class TlsStream(ByteStream):
    __slots__ = (
        "_batch_max", "_handshake", "_header", "_incoming", "_marks", "_next_at", "_opening", "_outgoing", "_over",
        "_rest", "_room", "_silent", "_tls", "_wire_bytes", "pending", "ready", "sock", "user",
    )  # fmt: skip
    portion_bytes = PORTION_BYTES

    def __init__(self, handshake: TlsHandshake) -> None:
        self.sock = handshake.sock
        self.ready = self.pending = False
        self.user = ""
        self._opening: Opening | None = None
        self._handshake: TlsHandshake | None = handshake
        """None: it is done."""
        self._tls: ssl.SSLObject
        self._incoming: ssl.MemoryBIO
        self._outgoing: ssl.MemoryBIO
        self._marks: WireMarks
        self._rest = b""
        """Enciphered bytes that the kernel did not take."""
        self._over: StreamError | bool = False
        """True, or an error, once the client has ended or broken the stream, maybe behind bytes that are still to be
        read."""
        self._header = b""
        """The bytes that have come of a record's header."""
        self._next_at = 0
        """Where the next header begins, in bytes that are still to come."""
        self._silent = 0
        """The records without content that count against the client, times ``MAKES_UP``."""
        self._wire_bytes = 0
        """Bytes made for the wire so far."""
        self._batch_max = BATCH_BYTES
        """The most that is enciphered before the kernel is asked."""
        self._room = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 2

    @property
    def unsent(self) -> int:  # type: ignore[override]
        return len(self._rest)

    @property
    def stage(self) -> str:
        return "" if self.ready else "the TLS handshake"

    # -- the handshake ------------------------------------------------------------------------------------------------

    def open(self, opening: Opening) -> None:
        assert self._handshake is not None
        self._opening = opening
        self._handshake.begin(self)

    def holds(self, size: int) -> None:
        assert self._opening is not None
        self._opening.holds(size)

    def secured(self, handshake: TlsHandshake) -> None:
        assert handshake.tls is not None
        self._tls, self._incoming, self._outgoing = handshake.tls, handshake.incoming, handshake.outgoing
        self._rest, self._wire_bytes, self.user = handshake.unsent, handshake.wire_bytes, handshake.user
        self._marks = WireMarks(self._wire_bytes)
        self._handshake = None
        self.ready = True
        self.pending = self._incoming.pending > 0
        if self.pending:
            came = self._incoming.read()
            self._incoming.write(came)
            self._silent = self._headers_in(came) * MAKES_UP
        opening, self._opening = self._opening, None
        assert opening is not None
        opening.opened()

    def insecure(self, reason: Reason, text: str) -> None:
        assert self._opening is not None
        self._opening.close(reason, text)

    # -- in -----------------------------------------------------------------------------------------------------------

    def receive(self, size: int) -> bytes:
        if self.pending:  # it came with the end of the handshake, or is the end behind the last bytes
            self.pending = False
            return self._decipher(b"")
        data = self.sock.recv(size)
        return self._decipher(data) if data else b""

    def _decipher(self, data: bytes) -> bytes:
        found: list[bytes] = []
        if not self._over:
            try:
                self._read_on(found)
                self._count_silent(0, len(found))
                at, step = 0, FIRST_BYTES
                while at < len(data) and not self._over:
                    some, before = data[at : at + step], len(found)
                    records = self._headers_in(some)
                    self._incoming.write(some)
                    self._read_on(found)
                    self._count_silent(records, len(found) - before)
                    at += step
                    step = RECORD_BYTES if records <= FEW_RECORDS else FIRST_BYTES
            except ssl.SSLError as error:
                self._over = worded(error, opening=False)
            self._answer()
        if found:
            self.pending = bool(self._over)
            return b"".join(found)
        if isinstance(self._over, StreamError):
            raise self._over
        if self._over:
            return b""
        raise BlockingIOError

    def _read_on(self, found: list[bytes]) -> None:
        """Reads all whole records that have come."""
        read = self._tls.read
        try:
            while not self._over:
                data = read(RECORD_BYTES)
                if data:
                    found.append(data)
                else:
                    self._over = True
        except ssl.SSLWantReadError:
            return

    def _headers_in(self, data: bytes) -> int:
        """Returns how many records begin in the bytes that come next."""
        data, at, records = self._header + data, self._next_at, 0
        while at + _HEADER_BYTES <= len(data):
            at += _HEADER_BYTES + (data[at + 3] << 8 | data[at + 4])
            records += 1
        self._header, self._next_at = data[at:], max(0, at - len(data))
        return records

    def _count_silent(self, records: int, found: int) -> None:
        """Ends the stream of a client that makes us decipher records again and again in which there is nothing."""
        self._silent = max(0, self._silent + records * MAKES_UP - found * (MAKES_UP + 1))
        if self._silent > SILENT_RECORDS_MAX * MAKES_UP and not self._over:
            text = "the client sends records without content again and again, such as wishes for new keys"
            self._over = StreamError(text, Reason.PROTOCOL_ERROR)

    def _answer(self) -> None:
        """Sends what OpenSSL has to say by itself: alerts, and answers to wishes for new keys."""
        if not self._outgoing.pending:
            return
        try:
            self._push()
        except StreamError as error:
            self._over = self._over or error
        if len(self._rest) > ANSWER_BYTES_MAX + BATCH_BYTES:
            text = "the client asks for new keys again and again, and does not read the answers"
            self._over = StreamError(text, Reason.PROTOCOL_ERROR)

    # -- out ----------------------------------------------------------------------------------------------------------

    def send(self, views: Sequence[Buffer]) -> int:
        if self._rest and not self._push():
            return 0
        write, read = self._tls.write, self._outgoing.read
        total, taken, waiting, batch = sum(map(len, views)), 0, 0, 0
        records: list[bytes] = []
        try:
            for content in contents(views):
                if not batch:
                    batch = self._batch_bytes() if total - taken > RECORD_BYTES else RECORD_BYTES
                waiting += write(content)
                records.append(read())
                if waiting >= batch:
                    whole_batch = self._send(records)
                    taken += waiting
                    waiting, batch, records = 0, 0, []
                    if not whole_batch:
                        return taken
            if records:
                self._send(records)
                taken += waiting
        except OSError as error:
            if not taken:
                raise _told(error) from None
        finally:
            self._marks.note(self._wire_bytes, taken)
        return taken

    def send_pieces(self, data: Buffer, piece_bytes: int) -> int:
        if self._rest and not self._push():
            return 0
        view, taken = memoryview(data), 0
        try:
            while taken < len(view) and not self._rest:
                count = self._tls.write(view[taken : taken + SMALL_RECORD_BYTES])
                record = self._outgoing.read()
                self._wire_bytes += len(record)
                self._rest = record[send_pieces(self.sock, record, piece_bytes) :]
                taken += count
        except OSError as error:
            if not taken:
                raise _told(error) from None
        finally:
            self._marks.note(self._wire_bytes, taken)
        return taken

    def send_file(self, handle: SpillHandle, start: int, count: int) -> int:
        taken, count = 0, min(count, FILE_BYTES)
        while taken < count and (not self._rest or self._push()):
            try:
                data = handle.read(start + taken, start + min(count, taken + BATCH_BYTES))
                taken += self.send((data,))
            except OSError:
                if taken:
                    break
                raise
        return taken

    def be_frugal(self, frugal: bool) -> None:
        self._batch_max = RECORD_BYTES if frugal else BATCH_BYTES

    def flush(self) -> bool:
        before = len(self._rest)
        self._push()
        return len(self._rest) < before

    def _batch_bytes(self) -> int:
        """Returns how much to encipher at once: as much as the kernel has room for, within limits."""
        queued: int = struct.unpack("i", fcntl.ioctl(self.sock.fileno(), termios.TIOCOUTQ, _NO_ROOM))[0]
        return min(self._batch_max, max(RECORD_BYTES, self._room - queued))

    def _send(self, records: list[bytes]) -> bool:
        """Sends records. Returns whether the kernel has taken all of them."""
        size = sum(map(len, records))
        self._wire_bytes += size
        try:
            sent = self.sock.send(records[0]) if len(records) == 1 else self.sock.sendmsg(records)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise StreamError(lost(error.errno)) from None  # not to be taken for a disk's
        if sent < size:
            self._rest = b"".join(records)[sent:]
        return sent == size

    def _push(self) -> bool:
        """Sends what is unsent, and what OpenSSL has to say by itself. Returns whether the kernel has taken all."""
        if self._outgoing.pending:
            more = self._outgoing.read()
            self._wire_bytes += len(more)
            self._rest += more
        if self._rest:
            try:
                self._rest = self._rest[self.sock.send(self._rest) :]
            except BlockingIOError:
                return False
            except OSError as error:
                raise StreamError(lost(error.errno)) from None
        return not self._rest

    def acknowledged(self, wire_bytes: int) -> int:
        return self._marks.plain_of(wire_bytes, self._wire_bytes)

    # -- the end ------------------------------------------------------------------------------------------------------

    def last_words(self, words: Sequence[Buffer]) -> list[Buffer]:
        if not self.ready or isinstance(self._over, StreamError):
            return []
        found: list[Buffer] = [self._rest]
        try:
            for word in words:
                for at in range(0, len(word), RECORD_BYTES):
                    self._tls.write(memoryview(word)[at : at + RECORD_BYTES])
                    found.append(self._outgoing.read())
        except ssl.SSLError:
            return []
        self._say_goodbye()
        found.append(self._outgoing.read())
        return [piece for piece in found if piece]

    def close(self) -> None:
        if self._handshake is not None:
            self._handshake.drop()
            self._handshake = self._opening = None
        if self.ready and not self._rest and not self._over:
            self._say_goodbye()
            with suppress(OSError):  # nobody may be there
                self._push()
        self.sock.close()

    def _say_goodbye(self) -> None:
        """Has OpenSSL write that no more follows."""
        with suppress(ssl.SSLError):  # the client's own goodbye has not come
            self._tls.unwrap()


def _told(error: OSError) -> OSError:
    return worded(error, opening=False) if isinstance(error, ssl.SSLError) else error
