"""Half-sent records: a socket took only the beginning of a record, and the cursor has to move.

Before the cursor moves, the rest of the record is set aside for the outlet. It is a reference to the chunk's memory. So
a thousand consumers with a half of the same record share that memory.
"""

from __future__ import annotations

from headway.core.consumer import Session, Subscription
from headway.core.log import CHUNK_BYTES, Chunk

LAST_READ_BYTES = CHUNK_BYTES
"""No more than this is read from disk for a client that is about to be disconnected, because it is not shared."""


def finish_half_sent(session: Session) -> bytes | memoryview:
    """Sets the rest of a half-sent record aside, so that its cursor is free to move. Raises OSError (failing disk)."""
    if session.half_sent is not None:
        chunk, start, stop = _half_sent(session.half_sent)
        rest = chunk.read(start, stop)
        # A bytearray cannot grow while a view of it exists, so it is copied; it is no larger than a chunk.
        rest = bytes(rest) if type(chunk.data) is bytearray else rest
        session.rest = bytes(session.rest) + rest if session.rest else rest
        session.half_sent.cursor.advance(stop - start)
        session.half_sent = None
    return session.rest


def _half_sent(subscription: Subscription) -> tuple[Chunk, int, int]:
    """Returns the record's chunk, and the start and stop of its rest there."""
    cursor = subscription.cursor
    chunk = cursor.chunk
    return chunk, cursor.position - chunk.start, chunk.ends[chunk.index_at(cursor.position)]


def last_of_half_sent(session: Session) -> bytes | memoryview | None:
    """Returns the rest of a half-sent record, which goes before the last packet of a connection. None if it cannot be
    read: then no last packet is possible, and the client gets the record again, whole, if it comes back."""
    half = session.half_sent
    if half is None:
        return session.rest
    chunk, start, stop = _half_sent(half)
    if chunk.resident or stop - start <= LAST_READ_BYTES:
        try:
            return finish_half_sent(session)
        except OSError:
            pass
    go_back(half)
    session.half_sent = None
    return None


def go_back(half_sent: Subscription) -> None:
    """Gives up the rest of a half-sent record. The record is sent again whole: by the cursor, or as a delivery in
    flight."""
    cursor = half_sent.cursor
    if cursor.owes(cursor.number):
        _, start, stop = _half_sent(half_sent)
        cursor.advance(stop - start)
    else:
        half_sent.rewind_record()


def free_cursor(subscription: Subscription) -> None:
    """Makes sure that the cursor is at a record boundary. Raises OSError (failing disk)."""
    if subscription.session.half_sent is subscription:
        finish_half_sent(subscription.session)
