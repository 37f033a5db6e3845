"""Half-sent records: a socket took the beginning of one; what becomes of the rest when its cursor has to move.

The rest is set aside for the outlet before the cursor moves. It is the chunk's own memory, by reference: a thousand who
have half of the same record share it.
"""

from __future__ import annotations

from headway.core.consumer import Session, Subscription
from headway.core.log import CHUNK_BYTES

LAST_READ_BYTES = CHUNK_BYTES
"""More than this is not read back from disk for a client that is to be cut: it would be for each of them alone."""


def finish_half_sent(session: Session) -> bytes | memoryview:
    """Set the rest of a half-sent record aside, so that its cursor is free to move. Raises OSError (failing disk)."""
    if session.half_sent is not None:
        cursor = session.half_sent.cursor
        chunk = cursor.chunk
        assert chunk is not None
        start, stop = _half_sent(session.half_sent)
        rest = chunk.read(start, stop)
        # A bytearray may grow, which it cannot while somebody looks at it; it is no larger than a chunk.
        rest = bytes(rest) if type(chunk.data) is bytearray else rest
        session.rest = bytes(session.rest) + rest if session.rest else rest
        session.half_sent = None
        cursor.advance(stop - start)
    return session.rest


def _half_sent(subscription: Subscription) -> tuple[int, int]:
    """What its chunk has of the rest of the record."""
    cursor = subscription.cursor
    chunk = cursor.chunk
    assert chunk is not None
    return cursor.position - chunk.start, chunk.ends[chunk.index_at(cursor.position)]


def last_of_half_sent(session: Session) -> bytes | memoryview | None:
    """What goes before a last word: the rest of the record half sent. None: it is not to be had, so there can be no
    last word, and the record is to be sent again, whole, should the client come back."""
    half = session.half_sent
    if half is None:
        return session.rest
    start, stop = _half_sent(half)
    assert half.cursor.chunk is not None
    if half.cursor.chunk.resident or stop - start <= LAST_READ_BYTES:
        try:
            return finish_half_sent(session)
        except OSError:
            pass
    go_back(half)
    session.half_sent = None
    return None


def go_back(half_sent: Subscription) -> None:
    """The rest of its record is not sent: all of it comes again, by the cursor, or from what is in flight."""
    cursor = half_sent.cursor
    if cursor.number in cursor.unacknowledged:
        start, stop = _half_sent(half_sent)
        cursor.advance(stop - start)
    else:
        half_sent.rewind_record()


def free_cursor(subscription: Subscription) -> None:
    """See to it that the cursor stands at a record boundary. Raises OSError (failing disk)."""
    if subscription.session.half_sent is subscription:
        finish_half_sent(subscription.session)
