"""Deliveries in flight and unacknowledged records, read without a change to how they are kept: the broker's own tables
would take each out of its row."""

from __future__ import annotations

from headway.core.consumer import Channel, Delivery
from headway.core.log import Chunk, Cursor


def in_flight(channel: Channel) -> dict[int, Delivery]:
    rows = {row.first_id + at: one for row in channel._rows for at, one in enumerate(row.deliveries())}
    return {**channel._each, **rows}


def in_flight_as(channel: Channel, delivery_id: int) -> Delivery | None:
    found = [row.delivery(at) for row in channel._rows if 0 <= (at := delivery_id - row.first_id) < row.count]
    return channel._each.get(delivery_id) or (found[0] if found else None)


def unacknowledged(cursor: Cursor) -> dict[int, Chunk]:
    return {**cursor._owed, **{one: row.chunk for row in cursor._owed_rows for one in range(row.first, row.stop)}}
