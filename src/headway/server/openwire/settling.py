"""Settling: what the six types of acknowledgements do to deliveries and to credit.

- *delivered*: the application has the messages, and may still give them back. The window becomes larger by as many.
- *redelivered*: the client hands them out once more; their next consumer sees that they came again.
- *poison*: the client gives up a message. It becomes a dead letter: to where its queue says, or to ``ActiveMQ.DLQ``.
- *standard*, *individual*, *unmatched*, *expired*: they are done with. The window is as large as before.

Acknowledgements in a transaction are put off until its commit (publishing.py).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from headway.core.base import Reason
from headway.core.consumer import DeadLetter
from headway.core.delivery import record_at
from headway.core.queue import letter_work, queue_of
from headway.server.connections import Steps
from headway.server.openwire.consuming import Consumer, Consuming
from headway.server.openwire.ports import ClientSide
from headway.server.peers import DURABLE, PeerPart
from headway.server.protocols import QUEUES
from headway.wire.openwire.alike import Acks
from headway.wire.openwire.codes import AckType
from headway.wire.openwire.commands import MessageAck

DEAD_LETTERS = "ActiveMQ.DLQ"
PORTION, POISON_PORTION = 256, 1
"""Deliveries that are settled in one step, and those that become dead letters."""
LOOK_SHARE = 16
"""So many deliveries that are looked through are one unit of work."""
log = logging.getLogger("headway")


class Settling(PeerPart[ClientSide]):
    __slots__ = ("_consuming",)

    def __init__(self, peer: ClientSide, consuming: Consuming) -> None:
        super().__init__(peer)
        self._consuming = consuming

    def over(self) -> None:
        del self._consuming
        super().over()

    def settle(self, ack: MessageAck) -> None:
        """Carries out an acknowledgement that is in no transaction."""
        consumer = self._consuming.by_id.get(ack.consumer)
        if consumer is None:
            return  # it has ended, and its messages are others' by now
        if ack.kind == AckType.DELIVERED:
            self._delivered(consumer, ack.messages)
            return
        ids = self.ids_of(consumer, ack)
        self._peer.budget.left -= len(consumer.channel.in_flight) // LOOK_SHARE if ack.first != ack.last else 0
        if ack.kind == AckType.REDELIVERED:
            for number in ids:
                delivery = consumer.channel.in_flight.get(number)
                if delivery is not None:  # None: it has timed out
                    delivery.returns += 1
        elif len(ids) > _portion(ack.kind):
            self._peer.budget.begin(self.steps(consumer, ack, ids))
        else:
            self._peer.budget.left -= self._done(consumer, ack, ids)

    def settle_each(self, acks: Acks) -> None:
        """Carries out acknowledgements of one message each, in steps."""
        consumer = self._consuming.by_id.get(acks.consumer)
        if consumer is not None:
            self._peer.budget.begin(self._each_settled(consumer, acks))

    def _each_settled(self, consumer: Consumer, acks: Acks) -> Steps:
        portion = _portion(acks.kind)
        for at in range(0, len(acks.ids), portion):
            ids = acks.ids[at : at + portion]
            ack = MessageAck(None, acks.consumer, acks.kind, 0, 0, len(ids), "")
            yield self._done(consumer, ack, ids)

    def steps(self, consumer: Consumer, ack: MessageAck, ids: Sequence[int]) -> Steps:
        """Settles deliveries in steps, also after the end of the consumer; those gone meanwhile are skipped."""
        portion = _portion(ack.kind)
        for at in range(0, max(1, len(ids)), portion):
            yield self._done(consumer, ack, ids[at : at + portion], first=at == 0)

    def ids_of(self, consumer: Consumer, ack: MessageAck) -> list[int]:
        """Returns the deliveries of queues that an acknowledgement names: those from its first message to its last."""
        channel = consumer.channel
        if ack.kind == AckType.INDIVIDUAL or ack.first == ack.last:
            return [ack.last] if ack.last in channel.in_flight else []
        return [number for number in channel.upto(ack.last) if number >= ack.first] if ack.last else []

    def _done(self, consumer: Consumer, ack: MessageAck, ids: Sequence[int], *, first: bool = True) -> int:
        """Settles deliveries, and returns the work."""
        channel, queues = consumer.channel, self._peer.queues.queues
        overdue = self._peer.engine.broker.registry.overdue
        before = overdue.left
        waiting = not consumer.prefetch and consumer.in_flight < channel.limit
        if not all(map(channel.in_flight.__contains__, ids)):  # most are there
            ids = [number for number in ids if channel.holds(number)]
        if ack.kind == AckType.POISON:
            for number in ids:
                self._give_up(consumer, number, ack.cause)
        elif ids:
            queues.acknowledge(channel, ids)
        if self._consuming.by_id.get(consumer.id) is not consumer:
            return max(1, len(ids)) + before - overdue.left  # its client has left during a commit
        count = len(ids)
        if first and consumer.windows:
            fanout = self._peer.engine.broker.fanout
            for subscription in consumer.subscriptions:  # more than one if the destination is composite
                if subscription.window.counts:
                    subscription.note_sent()
                    done = min(ack.messages - count, subscription.window.used)
                    fanout.settled(subscription, done)
                    count += done
        if not consumer.prefetch:
            self._consuming.open_window(consumer, consumer.in_flight + waiting)
        elif consumer.extra:
            consumer.extra = max(0, consumer.extra - count)
            self._consuming.open_window(consumer, consumer.limit)
        return max(1, len(ids)) + before - overdue.left

    def _delivered(self, consumer: Consumer, count: int) -> None:
        """Makes the window larger, by as many as are in flight at most."""
        if consumer.prefetch and count:
            consumer.extra = min(consumer.extra + count, consumer.in_flight)
            self._consuming.open_window(consumer, consumer.limit)

    def _give_up(self, consumer: Consumer, number: int, cause: str) -> None:
        """Makes a dead letter of a delivery."""
        channel, engine = consumer.channel, self._peer.engine
        queues = self._peer.queues.queues
        delivery = channel.in_flight.get(number)
        if delivery is None or delivery.chunk is None:
            queues.acknowledge(channel, [number])
            return
        queue = queue_of(delivery.subscription.reader.queue)
        log.warning("%s gives up a message of %s: %s", self._peer.granted.client, queue.name, cause or "poison")
        if queue.terms.dead_letter_exchange is not None:
            queues.refuse(channel, [number], requeue=False)
            return
        record = record_at(queue.feed.lane.dialect, delivery.chunk, delivery.index)
        if not self._peer.queues.knows(DEAD_LETTERS):  # it is the broker's wish, so it needs no permission
            queues.declare(self._peer.granted, DEAD_LETTERS, DURABLE, QUEUES.dialect, engine.now())
        terms = msgspec.structs.replace(queue.terms, dead_letter_exchange="", dead_letter_key=DEAD_LETTERS)
        engine.broker.registry.effects.append(DeadLetter(queue.name, terms, record, Reason.REJECTED))
        engine.broker.registry.overdue.left -= letter_work(engine.broker.registry.router, terms, record)
        queues.acknowledge(channel, [number])


def _portion(kind: int) -> int:
    return POISON_PORTION if kind == AckType.POISON else PORTION
