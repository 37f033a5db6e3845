"""Wire marks: how bytes on the wire, which the kernel counts, compare with those that were given to be sent."""

from __future__ import annotations

from collections import deque

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
