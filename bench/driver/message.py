"""Messages of the publishers: plain ones, some with a time stamp, and updates with a number."""

from __future__ import annotations

import socket
import struct

from bench.wires.mqtt import PACKET_IDS
from bench.wires.wire import Levels, Wire

STAMP = struct.Struct(">q")
FILLER = b"\xa5"
MARK = b"\xf0keyed:"
LARGEST = -1
"""A number that as eight bytes differs from 0 in each."""


class Template:
    """One publication, in which the beginning of the payload can be stamped and, where the protocol wants one, its own
    number be set."""

    def __init__(self, wire: Wire, sock: socket.socket, topic: Levels, payload_bytes: int) -> None:
        payload = FILLER * payload_bytes
        self.frame = wire.publication(sock, topic, payload, 0)
        self.size_bytes = len(self.frame)
        self._stamp_at = self.frame.index(payload)
        other = wire.publication(sock, topic, payload, LARGEST)
        self._number_at = next((at for at in range(self.size_bytes) if self.frame[at] != other[at]), None)
        self._next = 1

    def batch(self, size_bytes: int) -> bytearray:
        """Returns as many as fit, one at least."""
        return bytearray(self.frame * max(1, size_bytes // self.size_bytes))

    def number(self, batch: bytearray) -> None:
        """Sets the next numbers, where the protocol wants a message's own."""
        if self._number_at is not None:
            for at in range(self._number_at, len(batch), self.size_bytes):
                STAMP.pack_into(batch, at, self._next)
                self._next += 1

    def acknowledged(self, first: int, count: int) -> bytearray:
        """Returns ``count`` QoS 1 messages, with packet identifiers that follow from their numbers."""
        batch = bytearray(self.frame * count)
        packet_ids = struct.pack(f">{count}H", *[number % PACKET_IDS + 1 for number in range(first, first + count)])
        for byte in (0, 1):
            batch[self._stamp_at - 2 + byte :: self.size_bytes] = packet_ids[byte::2]
        return batch

    def stamped(self, stamps: range) -> bytearray:
        """Returns one message for each of these times."""
        batch = bytearray(self.frame * len(stamps))
        for stamp, at in zip(stamps, range(self._stamp_at, len(batch), self.size_bytes), strict=True):
            STAMP.pack_into(batch, at, stamp)
        self.number(batch)
        return batch


def keyed_payload(number: int, size_bytes: int) -> bytes:
    """Makes an update with its number, to be found in any stream by its mark."""
    return (MARK + STAMP.pack(number)).ljust(size_bytes, b"x")
