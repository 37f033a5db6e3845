"""Frames: the bytes of a record for one consumer, and when they may go out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from headway.core.consumer import Predicate, Subscription
from headway.core.log import HELD_BACK_BYTES, NOT_DURABLE, Chunk, read_stretch
from headway.core.message import Dialect, Record

if TYPE_CHECKING:
    from headway.core.consumer import Delivery
    from headway.core.log import DurablePosition


# -- addressing --------------------------------------------------------------------------------------------------------
#
# Addressing puts the records of a bare lane into a consumer's envelope (AMQP): its tag and the ids of its deliveries.
#
# What differs between consumers is little, so records are cut once for all of them in a turn, and each envelope fills
# in the rest.


Cuts = dict[tuple[object, ...], object]
"""Records as cut by envelopes in this turn; consumers that get the same records share them."""


def cut_of(
    cuts: Cuts, subscription: Subscription, chunk: Chunk, first: int, last: int, *, shared: bool,
    redelivered: int = 0,
) -> Any:  # fmt: skip
    """Returns records ``first`` … ``last - 1``, which may go on in the next chunks, as cut by the consumer's envelope.
    Consumers with the same envelope shape share the result, if it may be ``shared``. Raises OSError if the records are
    on a disk that fails."""
    envelope = subscription.request.envelope
    assert envelope is not None
    key = (chunk, first, last, envelope.shape, redelivered)
    cut = cuts.get(key)
    if cut is None:
        data, ends = read_stretch(chunk, first, last)
        cut = envelope.cut(data, ends, redelivered=redelivered)
        if shared:
            cuts[key] = cut
    return cut


def take_ids(consumer: Subscription, cut: object, count: int) -> int:
    """Takes the ids of the first ``count`` deliveries of a cut, which are sent now, and returns the first id."""
    consumer.window.spend(cut, count)
    return consumer.channel.take_ids(count)


def address_each(cuts: Cuts, subscription: Subscription, chunk: Chunk, first: int, last: int) -> bytes:
    """Returns records ``first`` … ``last - 1`` as deliveries for the consumer. Raises OSError, as ``cut_of``."""
    envelope = subscription.request.envelope
    assert envelope is not None
    cut = cut_of(cuts, subscription, chunk, first, last, shared=len(subscription.feed.subscriptions) > 1)
    return envelope.write(cut, 0, last - first, take_ids(subscription, cut, last - first))


def address(subscription: Subscription, frame: bytes) -> bytes:
    """Returns one record as it is sent to the consumer: in its envelope, if its dialect is bare."""
    envelope = subscription.request.envelope
    if envelope is None:
        return frame
    ends: Sequence[int] = [len(frame)]
    cut = envelope.cut(frame, ends)
    return envelope.write(cut, 0, 1, take_ids(subscription, cut, 1))


# -- decoded -----------------------------------------------------------------------------------------------------------
#
# Decoded records: those of a chunk as objects, and what a predicate says of them.


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


# -- exactly once ------------------------------------------------------------------------------------------------------
#
# Exactly once, also across a crash: a client sees no delivery state that the journal might lose.
#
# Rules:
# 1. A delivery's frame is *held back* until the journal has the delivery id with its record. So a client never holds an
#    id that the broker does not know after a restart.
# 2. A release (MQTT's PUBREL) is held back until the journal has that the client received the record. So the record is
#    not sent again to a client that has finished with its id.
# 3. An id is *orphaned* if it has no record any more and the client may still hold it. The broker releases it first on
#    the next connection, and does not use it again before the client has confirmed the release.
# 4. The broker answers a client's own exactly-once publishes in the same way: PUBREC and PUBCOMP are held back until
# the
#    journal has the arrival or the release of the id. Otherwise a restarted broker would take a new record with this id
#    for a duplicate and drop it. A CONNACK without a session is held back, too, because the client then takes all ids
#    for
#    free.
#
# For sessions and subscriptions that are not durable none of this is done.


EXACTLY_ONCE = 2
NO_RECORD = 0
"""The sequence of an id without a durable record."""


def exactly_once_position(subscription: Subscription) -> DurablePosition:
    """Returns the durable position that notes the deliveries before they are sent; the null position if they need not
    be noted."""
    if subscription.request.qos != EXACTLY_ONCE or not subscription.session.durable:
        return NOT_DURABLE
    return subscription.reader.durable_position(subscription)


def durable_record(delivery: Delivery) -> tuple[DurablePosition, int]:
    """Returns the durable position of a delivery's record, and the record's sequence."""
    position = exactly_once_position(delivery.subscription)
    if delivery.chunk is not None:
        return position, delivery.chunk.sequence_of(delivery.index) if position.durable else NO_RECORD
    noted = delivery.cursor.durable_position
    return (noted, delivery.number) if noted.durable else (position, NO_RECORD)


def note_in_flight(delivery_id: int, delivery: Delivery) -> DurablePosition:
    """Notes the record of a delivery id, and whether the client has it. Returns the position that noted it."""
    if delivery.subscription.request.qos != EXACTLY_ONCE:
        return NOT_DURABLE
    position, sequence = durable_record(delivery)
    position.record_in_flight(delivery.subscription.session.client, delivery_id, sequence, released=delivery.released)
    return position


def holds_back(subscription: Subscription) -> bool:
    """Tells whether too much of the client's data is held back for one more delivery."""
    return subscription.session.held_back.size >= HELD_BACK_BYTES and exactly_once_position(subscription).durable


def write(subscription: Subscription, frames: bytes | bytearray, position: DurablePosition) -> None:
    """Sends frames of a subscription. With a durable ``position`` they are held back until the journal has its notes.
    """
    session = subscription.session
    if position.durable:
        position.hold_back(session, frames)
    elif session.held_back.size and exactly_once_position(subscription).durable:
        session.held_back.add(0, frames)  # they keep their order behind the frames that are held back
    else:
        session.outlet.out += frames


def lose(subscription: Subscription, delivery_id: int) -> Delivery | None:
    """Removes a delivery that its client did not settle. Its id is orphaned."""
    channel = subscription.channel
    delivery = channel.remove(delivery_id)
    if delivery is None or subscription.request.qos != EXACTLY_ONCE:
        return delivery
    channel.orphaned_ids[delivery_id] = None
    position = exactly_once_position(subscription)
    position.record_in_flight(subscription.session.client, delivery_id, NO_RECORD, released=True)
    return delivery
