"""One client and its connections: what it consumes, what it has not settled, and how it behaves."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.core.queue_wire import PLAIN, Delivered, Wrapping, run_of
from tests.sim.queues import takebacks
from tests.sim.queues.chance import HEADERS, KEYS, Manner
from tests.sim.queues.model import Flight, QueueModel, State, patience_of
from tests.sim.queues.outlet import QueueOutlet

from headway.core.base.errors import Reason, Refused
from headway.core.consumer.channel import Channel, Life
from headway.core.consumer.credit import NO_LIMIT
from headway.core.consumer.request import ConnectRequest, SubscribeRequest, SubscriptionOptions
from headway.core.consumer.session import Session
from headway.core.consumer.subscription import Subscription
from headway.core.message.record import JOB_PATIENCE, Properties, Run, topic_of

if TYPE_CHECKING:
    from tests.sim.queues.world import World


class Consumer:
    def __init__(self, tag: str, model: QueueModel, channel: int, prefetch: int, *, acks: bool) -> None:
        self.tag = tag
        self.model = model
        self.channel = channel
        self.prefetch = prefetch
        self.acks = acks
        self.subscription: Subscription

    @property
    def live(self) -> bool:
        return not self.subscription.ended


class Party:
    def __init__(self, world: World, number: int, manner: Manner) -> None:
        self.world = world
        self.name = f"{manner.name} {number}"
        self.manner = manner
        self.rng = Random(world.rng.random())
        self.outlet: QueueOutlet | None = None
        self.session: Session | None = None
        self.paused = False
        self.naps_until_s = 0.0
        self.last_read_s = world.now
        self.away_until_s = 0.0
        self.given_s = 0.0
        """When it was given something last."""
        self.last_bytes = 0
        """By how much the pool grew with what it published last."""
        self._forget()
        self.connect()

    def _forget(self) -> None:
        self.channels: dict[int, Channel] = {}
        self.consumers: dict[str, Consumer] = {}
        self.flights: dict[tuple[int, int], Flight] = {}
        """What it has not settled, by channel and id."""
        self.hands: list[tuple[float, int, int]] = []
        """What it has read: when, channel and id."""

    # -- the connection ---------------------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        return self.outlet is not None

    def connect(self) -> bool:
        world = self.world
        outlet = QueueOutlet(world.now, self.rng.choice((60, 300, 2000, 100_000)), self.rng, world.shy, self._given)
        request = ConnectRequest(self.name, "", protocol="amqp-0-9-1")
        try:
            self.session = world.broker.connect(request, outlet, world.now)
        except Refused:
            return False
        self.outlet = outlet
        self.paused = False
        self.last_read_s = world.now
        return True

    def leave(self) -> None:
        """The connection is gone; the server ends its channels as well."""
        assert self.session is not None
        assert self.outlet is not None
        world, session, outlet, channels = self.world, self.session, self.outlet, list(self.channels.values())
        self.gone()
        world.broker.disconnect(session, outlet, Reason.CLIENT_GONE, world.now)
        for channel in channels:
            world.broker.queues.close_channel(session, channel, world.now)
        takebacks.reap(world)

    def gone(self) -> None:
        """What it had not settled is for others."""
        for flight in self.flights.values():
            self._lost(flight)
        for consumer in self.consumers.values():
            consumer.model.consumers.remove(consumer)
            consumer.model.used_s = self.world.now
        for model in [*self.world.models.values(), *self.world.unexplained]:
            if model.owner is self:
                model.owner = None
        assert self.outlet is not None
        self.outlet.open = False
        self.outlet = None
        self.world.last_own += self.last_bytes  # another connection may bring as much again
        self.last_bytes = 0
        self.away_until_s = self.world.now + self.rng.choice((0.0, 0.5))
        self._forget()

    def _lost(self, flight: Flight) -> None:
        flight.lost = True
        if not flight.returned and flight.entry.flight is flight and not flight.model.gone:
            flight.model.back(flight.entry)

    def channel(self, number: int) -> Channel:
        if number not in self.channels:
            assert self.session is not None
            limit = self.rng.choice((NO_LIMIT, NO_LIMIT, 1, 7))
            self.channels[number] = Channel(limit, NO_LIMIT, number, self.session.number)
        return self.channels[number]

    def close(self, number: int) -> None:
        channel = self.channels[number]
        assert self.session is not None
        session = self.session
        self.closed(number)
        self.world.broker.queues.close_channel(session, channel, self.world.now)
        takebacks.reap(self.world)

    def closed(self, number: int) -> None:
        """One of its channels is no more."""
        del self.channels[number]
        for key in [key for key in self.flights if key[0] == number]:
            self._lost(self.flights.pop(key))
        self.hands = [hand for hand in self.hands if hand[1] != number]
        for consumer in [consumer for consumer in self.consumers.values() if consumer.channel == number]:
            self.ended(consumer)

    # -- consuming --------------------------------------------------------------------------------------------------

    def consume(self, model: QueueModel, *, acks: bool | None = None, channel: int | None = None,
                prefetch: int | None = None) -> bool:  # fmt: skip
        assert self.session is not None
        world, rng = self.world, self.rng
        number = rng.choice((1, 1, 2)) if channel is None else channel
        acks = rng.random() < 0.6 if acks is None else acks
        serial = world.next_number()
        tag, patience_s = f"t{serial}", (0.5, 1.0, 3.0)[serial % 3] if serial % 5 == 0 else None
        prefetch = rng.choice((1, 3, 10, NO_LIMIT)) if prefetch is None else prefetch
        made = Consumer(tag, model, number, prefetch if acks else NO_LIMIT, acks=acks)
        exclusive = rng.random() < 0.05
        request = SubscribeRequest(f"$queue/{model.name}", PLAIN, qos=int(acks), name=(number, tag),
                                   envelope=Wrapping(number, tag), options=SubscriptionOptions(patience_s=patience_s))
        others = [one for one in model.consumers if one.live]
        only = any(one is model.exclusive for one in others)
        consume = partial(world.broker.queues.consume, self.session, self.channel(number), model.queue, request,
                          prefetch, world.now, exclusive=exclusive)
        if only or (exclusive and others):
            with pytest.raises(Refused):
                consume()
            return False
        self.consumers[tag] = made
        made.subscription = consume()
        model.exclusive = made if exclusive else None
        model.consumers.append(made)
        model.had_consumer = True
        return True

    def cancel(self, consumer: Consumer) -> None:
        self.ended(consumer)
        self.world.broker.queues.cancel(consumer.subscription, self.world.now)
        takebacks.reap(self.world)

    def ended(self, consumer: Consumer) -> None:
        """It is a consumer no more; what it has not settled stays with its channel."""
        if self.consumers.pop(consumer.tag, None) is None:
            return
        consumer.model.consumers.remove(consumer)
        consumer.model.used_s = self.world.now

    def flow(self, *, active: bool) -> None:
        """The client wants nothing for now, or again."""
        for consumer in self.consumers.values():
            consumer.subscription.let_flow(active)
            self.world.broker.registry.wake(self.session)

    def get(self, model: QueueModel) -> None:
        """Ask for one."""
        assert self.session is not None
        world, acks = self.world, self.rng.random() < 0.7
        request = SubscribeRequest(f"$queue/{model.name}", PLAIN, qos=int(acks), polling=True,
                                   name=(1, "get", model.name, acks))
        channel = self.channel(1)
        model.used_s = world.now
        only = any(one is model.exclusive for one in model.consumers if one.live)
        ask = partial(world.broker.queues.get, self.session, channel, model.queue, request, NO_LIMIT, world.now)
        if only:
            with pytest.raises(Refused):
                ask()
            return
        if model.queue.is_behind(world.now):
            return  # whoever asks waits until the queue has sorted what came
        try:
            got = ask()
        except OSError:
            if world.disk.unreadable:
                return
            raise
        if got is None:
            assert not model.lag, f"{model}: {model.lag} wait, and none is given"
            return
        one = Delivered(1, "", got.delivery_id, got.redelivered, PLAIN.decode(got.frame))
        world.note("gets", self.name, one.number, one.redelivered)
        self._take(one, model, None, acks=acks)
        assert got.records_left == model.lag
        if acks:
            self.hands.append((world.now, 1, one.id))

    def _given(self, one: Delivered) -> None:
        """It was handed out: the socket has its first byte."""
        if not one.channel:
            return  # an answer
        consumer = self.consumers.get(one.tag)
        assert consumer is not None, f"{self.name} was given {one.number} for {one.tag}, which is no consumer of its"
        self.world.note("given", self.name, one.tag, one.id, one.number, one.redelivered)
        model, self.given_s = consumer.model, self.world.now
        assert consumer.live
        assert consumer.subscription.life is not Life.PAUSED
        if model.terms.single_active:
            first = next(other for other in model.consumers if other.live)
            assert first is consumer, f"{model}: {one.number} went to {self.name}, and it is not its turn"
        if consumer.acks:
            mine = [flight for flight in self.flights.values() if flight.consumer is consumer]
            assert len(mine) < consumer.prefetch, f"{self.name}: {len(mine)} in flight, prefetch {consumer.prefetch}"
            assert not any(flight.returned for flight in mine), f"{self.name} has not settled what was taken back"
            limit = self.channels[one.channel].limit
            assert self._flying(one.channel) < limit, f"{self.name}: more than {limit} in flight on a channel"
        self._take(one, model, consumer, acks=consumer.acks)

    def _flying(self, channel: int) -> int:
        return sum(flight.channel == channel for flight in self.flights.values())

    def _take(self, one: Delivered, model: QueueModel, consumer: Consumer | None, *, acks: bool) -> None:
        world = self.world
        entry = model.entries.get(one.number)
        if entry is not None and entry.state is State.FLIES:
            takebacks.taken_from(world, entry)
        entry = model.given(one.number, one.redelivered, world.now, self.name)
        assert one.record.payload == world.payloads[one.number], f"{one.number} is not as it was published"
        if not acks:
            model.settled(entry)
            return
        flight = Flight(entry, model, self, self.channels[one.channel], one.channel, consumer, one.id, world.now)
        assert (one.channel, one.id) not in self.flights
        self.flights[one.channel, one.id] = flight
        model.flies(entry, flight)

    # -- settling ---------------------------------------------------------------------------------------------------

    def read(self, limit: float) -> bool:
        """Read so many bytes. Whether there were any."""
        outlet, world = self.outlet, self.world
        if outlet is None:
            return False
        count = int(min(outlet.taken - outlet.drained, limit))
        if count <= 0 and not (outlet.waits and outlet.taken == outlet.drained):  # it took nothing, out of shyness
            return False
        outlet.drained += count
        while outlet.unread and outlet.unread[0][0] <= outlet.drained:
            _, one = outlet.unread.popleft()
            if (one.channel, one.id) in self.flights:
                self.hands.append((world.now, one.channel, one.id))
        if outlet.waits:
            outlet.waits = False
            assert self.session is not None
            world.broker.writable(self.session, world.now)
        return True

    def handle(self) -> bool:
        """Settle what it has had for long enough. Whether there was any."""
        manner, world, rng = self.manner, self.world, self.rng
        if not manner.acks or self.outlet is None:
            return False
        due = [hand for hand in self.hands if hand[0] + manner.ack_delay_s <= world.now]
        self.hands = [hand for hand in self.hands if hand[0] + manner.ack_delay_s > world.now]
        for _, channel, delivery_id in due:
            if (channel, delivery_id) not in self.flights:
                continue  # with others
            dice = rng.random()
            if dice < manner.gives_back:
                self.refuse(channel, self._ids(channel, delivery_id), requeue=True)
            elif dice < manner.gives_back + manner.rejects:
                self.refuse(channel, self._ids(channel, delivery_id), requeue=False)
            else:
                self.acknowledge(channel, self._ids(channel, delivery_id))
        return bool(due)

    def _ids(self, channel: int, delivery_id: int) -> list[int]:
        if not self.manner.multiple or self.rng.random() < 0.3:
            return [delivery_id]
        mine = sorted(id for number, id in self.flights if number == channel and id <= delivery_id)
        assert self.channels[channel].upto(delivery_id) == mine, f"{self.name}: up to {delivery_id} is {mine}"
        return mine

    def acknowledge(self, channel: int, ids: list[int]) -> None:
        self.world.note("acks", self.name, channel, ids)
        for delivery_id in ids:
            flight = self.flights.pop((channel, delivery_id))
            before = flight.model.queue.backlog.lag_records
            self.world.broker.queues.acknowledge(self.channels[channel], [delivery_id])
            # Late: if nobody else has been given it, nobody needs to be; it may have been dropped meanwhile.
            withdrawn = flight.returned and flight.model.queue.backlog.lag_records < before
            if not flight.model.gone and (not flight.returned or withdrawn):
                flight.model.settled(flight.entry)

    def refuse(self, channel: int, ids: list[int], *, requeue: bool) -> None:
        self.world.note("refuses", self.name, channel, ids, requeue)
        for delivery_id in ids:
            flight = self.flights.pop((channel, delivery_id))
            if flight.returned or flight.model.gone:
                continue
            if requeue:
                flight.model.back(flight.entry)
            else:
                flight.model.rejected(flight.entry)
        self.world.broker.queues.refuse(self.channels[channel], ids, requeue=requeue)

    def recover(self, channel: int) -> None:
        self.world.note("recovers", self.name, channel)
        for key in [key for key in self.flights if key[0] == channel]:
            flight = self.flights.pop(key)
            if not flight.returned and not flight.model.gone:
                flight.model.back(flight.entry)
        for _ in self.world.broker.queues.recover(self.channels[channel], self.world.now):
            pass

    def hears_an_answer(self) -> None:
        """The server writes something of its own, in the middle of a turn."""
        assert self.outlet is not None
        assert self.session is not None
        frame, wrapping = PLAIN.encode(run_of("", [b"0 answer"]), 0).data, Wrapping(0, "")
        self.outlet.answer(wrapping.write(wrapping.cut(frame, [len(frame)]), 0, 1, 0))
        self.world.broker.fanout.again[self.session] = None

    # -- publishing -------------------------------------------------------------------------------------------------

    def publish(self) -> None:
        world, rng = self.world, self.rng
        if self.outlet is None or self.paused:
            return
        exchange = rng.choice([name for name in world.wiring.hubs if name] + [""] * 4 * world.by_name)
        key = rng.choice(list(world.wiring.queues) or ["nobody"]) if not exchange else rng.choice(KEYS)
        headers = rng.choice(HEADERS) if exchange.endswith("headers") else {}
        size = rng.choice((0, 10, 10, 40, world.size_max))
        count = rng.choice((1, 1, 3, 10, 40))
        sizes = [size] * count if rng.random() < 0.7 else [rng.randint(0, size) for _ in range(count)]
        priority = rng.choice((None, 0, 1, 2, 5, 12))
        lifetime_s = rng.choice((0.2, 0.5, 5.0)) if rng.random() < 0.15 else None
        world.publish(self, exchange, key, headers, sizes, priority, lifetime_s, as_topic=rng.random() < 0.5)

    def run(self, exchange: str, key: str, headers: dict[str, object], payloads: list[bytes], priority: int | None,
            expires_s: float) -> Run:  # fmt: skip
        user = () if priority is None else (("priority", str(priority)),)
        patience_s = patience_of(int(payloads[0].split()[0]), len(payloads))
        user += ((JOB_PATIENCE, f"{patience_s}s"),) if patience_s else ()
        native = msgspec.json.encode(sorted(headers.items())) if headers else None
        run = run_of(key, payloads, exchange=exchange, properties=Properties(user=user, native=native),
                     headers=headers or None, expires_s=expires_s)
        assert run.topic == topic_of(key)
        return run
