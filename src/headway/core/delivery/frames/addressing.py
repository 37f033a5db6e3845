"""Addressing puts the records of a bare lane into a consumer's envelope (AMQP): its tag and the ids of its deliveries.

What differs between consumers is little, so records are cut once for all of them in a turn, and each envelope fills in
the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headway.core.consumer import Subscription
from headway.core.log import Chunk, read_stretch

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
