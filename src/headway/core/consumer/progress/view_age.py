"""The view age of a consumer: how old the records are that its client reads now.

It is more than the age of what waits here, for the kernels of both sides hold what was taken: half a megabyte of a
connection, which is half a minute of a client that reads 20 kB a second. At each look at a lagging consumer a *mark*
notes how many bytes its outlet has taken, and when the record was published that comes next. What the client reads now
lies between two marks, or behind the last one.
"""

from __future__ import annotations

from collections import deque

MARKS_MAX = 128
"""The number of marks of one consumer. With one for each look they cover half a minute; then they lie further apart."""


class ViewAge:
    __slots__ = ("_apart_bytes", "_marks")

    def __init__(self) -> None:
        self._marks: deque[tuple[int, float]] = deque()
        """(bytes taken, when the record was published that comes next)."""
        self._apart_bytes = 1
        """Marks are so far apart, at least."""

    def note(self, taken_bytes: int, next_s: float) -> None:
        """Notes that of ``taken_bytes`` all were published before this time."""
        marks = self._marks
        if marks and taken_bytes < marks[-1][0]:
            marks.clear()  # it is another connection
        if marks and taken_bytes == marks[-1][0]:
            marks[-1] = (taken_bytes, next_s)
        elif not marks or taken_bytes - marks[-1][0] >= self._apart_bytes:
            marks.append((taken_bytes, next_s))
        if len(marks) > MARKS_MAX:
            self._apart_bytes = 2 * (marks[-1][0] - marks[0][0]) // MARKS_MAX
            self._marks = deque(list(marks)[::2])

    def seconds(self, read_bytes: int, next_s: float, now: float) -> float:
        """Returns how old the record is that comes after the first ``read_bytes``. ``next_s``: when the record was
        published that comes after the bytes that were taken; ``inf``: none waits."""
        marks = self._marks
        while len(marks) > 1 and marks[1][0] <= read_bytes:
            marks.popleft()
        if not marks or read_bytes >= marks[-1][0]:
            return max(0.0, now - next_s)
        taken_bytes, at_s = marks[0]
        if len(marks) > 1 and read_bytes > taken_bytes:
            upto_bytes, upto_s = marks[1]
            at_s += (upto_s - at_s) * (read_bytes - taken_bytes) / (upto_bytes - taken_bytes)
        return max(0.0, now - at_s)
