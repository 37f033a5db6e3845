"""The stage (tests/core/stage.py) with queues: peers that declare, bind, publish, consume, settle, as AMQP clients do.

What travels is plainer than AMQP, so that each story can say what it read: a record in a lane is its facts as JSON and
its payload; a delivery is consumer tag, id and flag, and that frame. MQTT clients may be on the same stage.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from math import inf
from random import Random
from typing import Any

import msgspec
from tests.core.queue_wire import PLAIN, Delivered, Wrapping, delivery_length, read_delivery, run_of
from tests.core.stage import STUCK, Client, Socket, Stage

from headway.core.base.errors import Reason
from headway.core.broker import Broker
from headway.core.consumer.channel import Channel
from headway.core.consumer.connection.outlet import PeerState
from headway.core.consumer.credit import NO_LIMIT
from headway.core.consumer.effects import (
    Cancelled,
    CloseChannel,
    CloseConsumer,
    DeadLetter,
    Disconnect,
    Pause,
    Resume,
    Spill,
)
from headway.core.consumer.request import ConnectRequest, QueueTerms, SubscribeRequest, SubscriptionOptions
from headway.core.consumer.session import Session
from headway.core.consumer.subscription import Subscription
from headway.core.message.record import JOB_PATIENCE, Properties, ReceiptRequest
from headway.core.queue.queue import Queue
from headway.core.routing.matching.bindings import Binding, Destination, Exchange
from headway.core.routing.publishing import Published

QUEUES_ASKED = 50
"""So many queues are asked again whether they have more to hand out."""


class Peer:
    """A connection with channels. A consumer that acks does so as it reads; others hold what they get."""

    def __init__(self, stage: QueueStage, name: str, *, reads: float, buffer: int, listener: str = "") -> None:
        self.stage = stage
        self.name = name
        self.reads = reads
        self.buffer = buffer
        self.paused = False
        self.allowance = 0.0
        self.seen: list[Delivered] = []
        self.channels: dict[int, Channel] = {}
        self.consumers: dict[tuple[int, str], Subscription] = {}
        self.acks: dict[tuple[int, str], bool] = {}
        self.goodbye: Disconnect | None = None
        self.closed: list[CloseChannel] = []
        self.cancelled: list[str] = []
        self.asked_to_close: list[str] = []
        self.outlet = Socket(stage.now, buffer, Random(0), 0.0, self._took)
        self.outlet.state = PeerState(window_closed=reads == STUCK)
        request = ConnectRequest(name, listener, protocol="amqp-0-9-1")
        self.session: Session = stage.broker.connect(request, self.outlet, stage.now)
        self._frames: list[tuple[int, Delivered]] = []
        self._tail, self._taken = bytearray(), 0
        stage.clients[name] = self  # type: ignore[assignment]

    @property
    def connected(self) -> bool:
        return self.session.outlet is self.outlet

    @property
    def broker(self) -> Broker:
        return self.stage.broker

    # -- what it has read -------------------------------------------------------------------------------------------

    @property
    def numbers(self) -> list[int]:
        return [one.number for one in self.seen]

    def of(self, tag: str, channel: int = 1) -> list[int]:
        """What one consumer was given."""
        return [one.number for one in self.seen if (one.channel, one.tag) == (channel, tag)]

    @property
    def again(self) -> list[int]:
        """What was marked as redelivered."""
        return [one.number for one in self.seen if one.redelivered]

    def ids(self, channel: int = 1) -> list[int]:
        """Deliveries it has not settled, as it knows them itself."""
        return list(self.channels[channel].in_flight) if channel in self.channels else []

    def id_of(self, number: int) -> int:
        """Of its last delivery of this record."""
        return next(one.id for one in reversed(self.seen) if one.number == number)

    # -- commands ---------------------------------------------------------------------------------------------------

    def channel(self, number: int = 1, limit: int = NO_LIMIT) -> Channel:
        if number not in self.channels:
            self.channels[number] = Channel(limit, NO_LIMIT, number, self.session.number)
        return self.channels[number]

    def declare(self, name: str, **terms: Any) -> Queue:
        return self.broker.queues.declare(self.session, name, QueueTerms(**terms), PLAIN, self.stage.now)

    def delete(self, name: str, **how: bool) -> int:
        return self.broker.queues.delete(self.broker.queues.queue(self.session, name), self.stage.now, **how)

    def exchange(self, name: str, kind: str = "direct", **how: Any) -> None:
        self.broker.queues.declare_exchange(Exchange(name, kind, **how))

    def bind(self, queue: str, source: str, key: str = "", **arguments: object) -> None:
        self.broker.queues.bind(self.session, _binding(source, Destination("queue", queue), key, arguments))

    def unbind(self, queue: str, source: str, key: str = "", **arguments: object) -> None:
        self.broker.queues.unbind(self.session, _binding(source, Destination("queue", queue), key, arguments))

    def chain(self, source: str, to: str, key: str = "") -> None:
        """Bind an exchange to another."""
        self.broker.queues.bind(self.session, Binding(source, Destination("exchange", to), key))

    def consume(self, queue: str, prefetch: int = NO_LIMIT, *, acks: bool | None = True, tag: str = "",
                channel: int = 1, exclusive: bool = False, policy: str | None = None,
                patience_s: float | None = None, selector: str | None = None, alone: bool = False) -> Subscription:
        """``acks``: whether it settles what it reads; None: nothing is to be settled (no-ack)."""
        tag = tag or queue
        queues = self.broker.queues
        request = SubscribeRequest(
            f"$queue/{queue}", PLAIN, qos=int(acks is not None), name=(channel, tag), envelope=Wrapping(channel, tag),
            options=SubscriptionOptions(policy=policy, patience_s=patience_s, selector=selector), alone=alone,
        )  # fmt: skip
        made = queues.consume(self.session, self.channel(channel), queues.queue(self.session, queue), request,
                              prefetch, self.stage.now, exclusive=exclusive)
        self.consumers[channel, tag], self.acks[channel, tag] = made, bool(acks)
        return made

    def cancel(self, tag: str, channel: int = 1) -> None:
        self.broker.queues.cancel(self.consumers.pop((channel, tag)), self.stage.now)

    def get(self, queue: str, *, acks: bool | None = False, channel: int = 1) -> tuple[Delivered, int] | None:
        """A record and how many more wait."""
        queues = self.broker.queues
        request = SubscribeRequest(f"$queue/{queue}", PLAIN, qos=int(acks is not None), polling=True,
                                   name=(channel, "get", queue, acks is None))
        found = queues.queue(self.session, queue)
        got = queues.get(self.session, self.channel(channel), found, request, NO_LIMIT, self.stage.now)
        if got is None:
            return None
        one = Delivered(channel, "", got.delivery_id, got.redelivered, PLAIN.decode(got.frame))
        self.seen.append(one)
        if acks:
            self.ack(one.id, channel=channel)
        return one, got.records_left

    def ack(self, *ids: int, channel: int = 1) -> None:
        self.broker.queues.acknowledge(self.channels[channel], list(ids))

    def ack_upto(self, delivery_id: int, channel: int = 1) -> None:
        if channel not in self.channels:
            return  # it was cut
        self.ack(*self.channels[channel].upto(delivery_id), channel=channel)

    def nack(self, *ids: int, requeue: bool, channel: int = 1) -> None:
        self.broker.queues.refuse(self.channels[channel], list(ids), requeue=requeue)

    def recover(self, channel: int = 1, *, requeue: bool = True) -> None:
        for _ in self.broker.queues.recover(self.channels[channel], self.stage.now, requeue=requeue):
            pass

    def close(self, channel: int = 1) -> None:
        self.broker.queues.close_channel(self.session, self.channels.pop(channel), self.stage.now)

    def leave(self) -> None:
        """The connection is gone; the server ends its channels as well."""
        self.broker.disconnect(self.session, self.outlet, Reason.CLIENT_GONE, self.stage.now)
        for number in list(self.channels):
            self.close(number)

    def publish(self, key: str, first: int, count: int = 1, *, exchange: str = "", size: int = 20,
                priority: int | None = None, ttl_s: float | None = None, qos: int = 1,
                receipt: ReceiptRequest | None = None, patience: str | None = None,
                user: tuple[tuple[str, str], ...] = (), **headers: object) -> Published | None:
        """So many records, numbered; None (and nothing) while the broker does not read this peer."""
        if self.paused:
            return None
        user += () if priority is None else (("priority", str(priority)),)
        user += () if patience is None else ((JOB_PATIENCE, patience),)
        native = msgspec.json.encode(headers) if headers else None
        run = run_of(
            key, [f"{number} ".encode().ljust(size, b".") for number in range(first, first + count)], exchange=exchange,
            properties=Properties(user=user, native=native), headers=headers or None,
            expires_s=inf if ttl_s is None else self.stage.now + ttl_s, qos=qos,
        )  # fmt: skip
        run.receipt = receipt
        return self.broker.intake.publish_to(self.session, run, self.stage.now)

    # -- reading ----------------------------------------------------------------------------------------------------

    def _took(self, data: bytes) -> None:
        self._tail += data
        while (size := delivery_length(self._tail)) and len(self._tail) >= size:
            self._taken += size
            self._frames.append((self._taken, read_delivery(bytes(self._tail[:size]))))
            del self._tail[:size]

    def read(self, limit: float) -> bool:
        """Read so many bytes. Whether there were any."""
        outlet = self.outlet
        count = int(min(outlet.taken - outlet.drained, limit))
        if count <= 0:
            return False
        outlet.drained += count
        self._arrived(outlet.drained)
        if outlet.waits and self.connected:
            outlet.waits = False
            self.broker.writable(self.session, self.stage.now)
        return True

    def _arrived(self, upto: float) -> None:
        settled: dict[int, list[int]] = {}
        while self._frames and self._frames[0][0] <= upto:
            _, one = self._frames.pop(0)
            if not one.channel:
                continue
            self.seen.append(one)
            if self.acks[one.channel, one.tag] and self.connected and one.channel in self.channels:
                settled.setdefault(one.channel, []).append(one.id)
        for channel, ids in settled.items():
            self.ack(*ids, channel=channel)

    def pass_time(self) -> bool:
        if self.reads == inf:
            return False
        before = self.outlet.drained
        self.allowance = min(self.allowance + self.reads * 0.1, self.buffer + self.reads)
        while self.allowance >= 1:
            had = self.outlet.drained
            if not self.read(self.allowance):
                break
            self.allowance -= self.outlet.drained - had
            self.broker.flush(self.stage.now)  # as the server does when there is room
        return self.outlet.drained != before

    def hears_an_answer(self) -> None:
        """The server writes something that is no delivery, in the middle of a turn."""
        frame, wrapping = PLAIN.encode(run_of("", [b"0 answer"]), 0).data, Wrapping(0, "")
        self.outlet.out += wrapping.write(wrapping.cut(frame, [len(frame)]), 0, 1, 0)
        self.broker.fanout.again[self.session] = None

    def hears_the_end(self, effect: Disconnect) -> None:
        assert effect.rest is not None
        self._took(bytes(effect.rest) + bytes(self.outlet.out))
        assert not self._tail, "cut off in the middle of a delivery"
        self.goodbye = effect
        self.outlet.open = False
        self._arrived(inf)


def purged(queue: Queue) -> int:
    """All that waits, at once."""
    steps = queue.purge()
    while True:
        try:
            next(steps)
        except StopIteration as over:
            return int(over.value)


def _binding(source: str, to: Destination, key: str, arguments: dict[str, object]) -> Binding:
    return Binding(source, to, key, tuple(sorted((name.replace("_", "-"), v) for name, v in arguments.items())))


class QueueStage(Stage):
    """As ``Stage``, with what the server does about the effects of queues. ``dead`` letters are only collected."""

    def __init__(self, toml: str = "", **pool: str) -> None:
        self.dead: list[DeadLetter] = []
        super().__init__(toml, **pool)

    def peer(self, name: str, *, reads: float = inf, buffer: int = 100_000, listener: str = "") -> Peer:
        return Peer(self, name, reads=reads, buffer=buffer, listener=listener)

    def queue(self, name: str) -> Queue:
        return self.broker.registry.router.queues[name]

    def turn(self, moved: bool = True) -> bool:
        """As in ``Stage``. Afterwards who looks again at queues that are at rest finds nothing to hand out."""
        if not super().turn(moved):
            return False
        some = list(islice(self.broker.registry.router.queues.values(), QUEUES_ASKED))
        before = [queue.backlog.handed_records for queue in some]
        self.broker.registry.ready_queues |= dict.fromkeys(some)
        super().turn()
        assert [queue.backlog.handed_records for queue in some] == before, "a queue at rest had more to hand out"
        return True

    def counts(self, name: str) -> Counter[str]:
        """What the queue left out, by reason."""
        return Counter({str(reason): count for reason, count in self.queue(name).drops.by_reason.items()})

    @property
    def lanes(self) -> list[str]:
        """What queues read, in words."""
        return [feed.key.filter for feed in self.broker.registry.router.feeds.values() if feed.by_exchange]

    def _carry_out(self) -> bool:
        effects = self.broker.take_effects()
        for effect in effects:
            match effect:
                case Disconnect(session, outlet, reason, _, _):
                    client: Client | Peer = self.clients[session.client]
                    client.hears_the_end(effect)
                    self.broker.disconnect(session, outlet, reason, self.now)
                    if isinstance(client, Peer):
                        for number in list(client.channels):
                            client.close(number)
                case CloseChannel(session, channel, _, _):
                    peer = self.peer_of(session)
                    peer.closed.append(effect)
                    peer.close(channel.number)
                case Cancelled(subscription):
                    assert isinstance(subscription.request.name, tuple)
                    self.peer_of(subscription.session).cancelled.append(subscription.request.name[1])
                case DeadLetter():
                    self.dead.append(effect)
                case CloseConsumer(subscription, _):
                    assert isinstance(subscription.request.name, tuple)
                    self.peer_of(subscription.session).asked_to_close.append(subscription.request.name[1])
                case Spill():
                    self.spills.append(effect)
                    self.disk.submit(effect, self.now)
                case Pause(session=session) | Resume(session):
                    self.clients[session.client].paused = isinstance(effect, Pause)
        return bool(effects)

    def peer_of(self, session: Session) -> Peer:
        found: Any = self.clients[session.client]
        assert isinstance(found, Peer)
        return found


def filled(stage: QueueStage, count: int = 10, *, size: int = 20, **terms: object) -> Peer:
    """A peer with queue "q", in which records 0 … count - 1 wait."""
    peer = stage.peer("owner")
    peer.declare("q", **terms)
    if count:
        peer.publish("q", 0, count, size=size)
    stage.turn()
    return peer


def reader(stage: QueueStage, *queues: str, acks: bool | None = True) -> Peer:
    """Who consumes all of these, each under its own name."""
    made = stage.peer(f"reader of {', '.join(queues)}")
    for name in queues:
        made.consume(name, acks=acks)
    return made


def drained(stage: QueueStage, name: str) -> list[int]:
    """What waits in a queue, by asking for it."""
    asking, found = stage.peer("drain"), []
    while (got := asking.get(name, acks=True)) is not None:
        found.append(got[0].number)
    asking.leave()
    return found


def owner(stage: QueueStage, *queues: str, **terms: object) -> Peer:
    """Who has declared these, and publishes to them."""
    made = stage.peer("owner")
    for name in queues or ("q",):
        made.declare(name, **terms)
    return made


def consumer(stage: QueueStage, name: str, queue: str = "q", prefetch: int = 2**62, *, acks: bool | None = True,
             reads: float = float("inf"), buffer: int = 2000) -> Peer:  # fmt: skip
    made = stage.peer(name, reads=reads, buffer=buffer)
    made.consume(queue, prefetch, acks=acks)
    return made
