"""Decoded records: those of a chunk as objects, and what a predicate says of them."""

from __future__ import annotations

import msgspec

from headway.core.consumer import Predicate, Subscription
from headway.core.log import Chunk
from headway.core.message import Dialect, Record

MARKED_RECORDS = 128
"""Records of a chunk that are held against a predicate at once."""


def record_at(dialect: Dialect, chunk: Chunk, index: int) -> Record:
    """Returns record ``index`` of a chunk as an object. Raises OSError if it is on a disk that fails."""
    frame = bytes(chunk.read(chunk.record_start(index), chunk.ends[index]))
    run = chunk.run_of(index)
    return msgspec.structs.replace(
        dialect.decode(frame),
        sequence=chunk.sequence_of(index), time_s=chunk.run_time[run],
        expires_s=chunk.run_expires[run], publisher=chunk.run_publisher[run],
    )  # fmt: skip


def marked(subscription: Subscription, chunk: Chunk, predicate: Predicate, index: int) -> bytes:
    """Returns one byte for each of the first records of the chunk, at least up to record ``index``: what the predicate
    says of it. The chunk caches the result."""
    if chunk.marks is None:
        chunk.marks = {}
    have = chunk.marks.get(predicate.key, b"")
    if len(have) <= index:
        dialect, stop = subscription.feed.lane.dialect, min(len(chunk), max(index + 1, len(have) + MARKED_RECORDS))
        have += bytes(predicate.test(record_at(dialect, chunk, i)) for i in range(len(have), stop))
        chunk.marks[predicate.key] = have
    return have
