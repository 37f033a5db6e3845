"""Lanes filled by hand: records of given sizes, so that every position in them is known."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from headway.core.log.lanes.lane import Lane
from headway.core.log.lanes.pool import Pool
from headway.core.message.record import EncodedRun, Run
from headway.wire.mqtt.dialect import MqttDialect


class Handle:
    """A chunk's bytes on a disk that always works."""

    fd, offset = -1, 0

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.released = 0

    @property
    def disk_bytes(self) -> int:
        return len(self.data)

    def read(self, start: int, stop: int) -> bytes:
        return self.data[start:stop]

    def release(self) -> None:
        self.released += 1


def lane(memory: int = 10**9, disk: int = 10**9) -> Lane:
    return Lane(MqttDialect(4), Pool("p", memory, disk))


def append(to: Lane, *sizes: int, publisher: int = 1, now: float = 0.0, holes: bool = False) -> None:
    """Records of these sizes, as one run; as the codec has it, their ends are a range where they are of one size."""
    ends: Sequence[int] = list(accumulate(sizes))
    if len(set(sizes)) == 1:
        ends = range(sizes[0], sum(sizes) + 1, sizes[0])
    data = b"".join(bytes([65 + i % 26]) * size for i, size in enumerate(sizes))
    run = Run("t", data, ends, [end - size for end, size in zip(ends, sizes, strict=True)])
    run.publisher = publisher
    starts = [end - size + 2 for end, size in zip(ends, sizes, strict=True)]
    to.append(run, EncodedRun(data, ends, starts if holes else ()), to.last_sequence + 1, now)


def sizes_of(of: Lane) -> list[int]:
    return [chunk.size for chunk in of.chunks()]
