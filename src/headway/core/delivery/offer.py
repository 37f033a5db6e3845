"""An offer is memory of a lane that one send hands to a consumer, from its cursor on."""

from __future__ import annotations

from headway.core.consumer import Subscription

VIEWS_MAX = 16
"""The number of chunks that one ``send`` offers."""
View = memoryview | bytearray | bytes
Offer = tuple[list[View], int, bool]


def end_of_room(subscription: Subscription) -> int:
    """Returns the position in the lane up to which a consumer that acknowledges by number has room, or one before it:
    no further than one ``send`` goes."""
    cursor, room = subscription.cursor, subscription.room
    chunk, number = cursor.chunk, cursor.number + room
    for _ in range(VIEWS_MAX):
        if chunk.next is None or chunk.first_number + len(chunk) >= number:
            break
        chunk = chunk.next
    left = number - chunk.first_number
    return chunk.stop if left >= len(chunk) else chunk.start + chunk.ends[left - 1]


def offer_from(subscription: Subscription, end: int) -> Offer:
    """Returns the memory from the cursor on to ``end``: views, their bytes, and whether they reach that far."""
    cursor = subscription.cursor
    cursor.step()
    chunk = cursor.chunk
    position = cursor.position
    views: list[View] = []
    total = 0
    while position < end and len(views) < VIEWS_MAX and not cursor.lane.bare:
        if chunk.spill is not None or not chunk.plain:
            break
        view = memoryview(chunk.data)[position - chunk.start : end - chunk.start]
        views.append(view)
        total += len(view)
        position = chunk.stop
        if chunk.next is None:
            break
        chunk = chunk.next
    return views, total, position == end
