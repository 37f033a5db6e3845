"""The broker's effects, carried out in a world with queues: nobody is cut who did not deserve it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.sim.queues import chance, takebacks
from tests.sim.queues.party import Consumer, Party

from headway.core.base.errors import Reason
from headway.core.consumer.effects import (
    Cancelled,
    CloseChannel,
    CloseConsumer,
    DeadLetter,
    Disconnect,
    Effect,
    Pause,
    Resume,
    Spill,
)
from headway.core.message.record import routing_key_of

if TYPE_CHECKING:
    from tests.sim.queues.world import World

INNOCENT = frozenset({Reason.NORMAL, Reason.CLIENT_GONE, Reason.TAKEN_OVER, Reason.ADMIN})


def carry_out(world: World) -> None:
    for effect in world.broker.take_effects():
        _carry_out_one(world, effect)
    takebacks.look(world)
    for flight in world.moved:
        assert flight.lost or flight.returned, f"{flight.entry.number} was taken from {flight.party.name}: why?"
    world.moved.clear()
    for model in world.unexplained:
        assert model.owner is None, f"{model} is gone, and its owner is there"
    world.unexplained.clear()


def _carry_out_one(world: World, effect: Effect) -> None:
    match effect:
        case Disconnect(session, outlet, reason, text, rest):
            party = next(party for party in world.parties if party.session is session)
            world.note("disconnected", party.name, reason)
            world.count(f"disconnected {reason}")
            assert party.outlet is outlet
            assert _deserved(world, party, reason), f"{party.name} was disconnected: {text}"
            assert rest == b"", "queues leave nothing half sent but in the outlet"
            channels = list(party.channels.values())
            party.gone()
            world.broker.disconnect(session, outlet, reason, world.now)
            for channel in channels:
                world.broker.queues.close_channel(session, channel, world.now)
        case CloseChannel(session, channel, reason, text):
            party = next(party for party in world.parties if party.session is session)
            world.note("channel closed", party.name, channel.number, reason)
            world.count(f"channel closed {reason}")
            assert _deserved(world, party, reason), f"{party.name} was cut: {text}"
            party.close(channel.number)
        case Cancelled(subscription):
            consumer = _consumer(world, subscription)
            if consumer is not None:
                world.note("cancelled", consumer[0].name, consumer[1].tag)
                world.count("cancelled")
                consumer[0].ended(consumer[1])
        case CloseConsumer(subscription, _):
            consumer = _consumer(world, subscription)
            if consumer is not None and not subscription.ended and world.rng.random() < 0.7:
                world.count("asked to close")
                consumer[0].cancel(consumer[1])
        case DeadLetter(name, _, record, reason):
            _bury(world, name, record.payload, reason, routing_key_of(record.topic))
        case Spill():
            world.note("spill", len(effect.chunks))
            world.count("spills")
            world.disk.submit(effect, world.now)
        case Pause(session=session) | Resume(session):
            for party in world.parties:
                if party.session is session:
                    party.paused = isinstance(effect, Pause)
                    world.count("pauses")


def _deserved(world: World, party: Party, reason: Reason) -> bool:
    """Who reads and settles everything at once is never cut; unless what waits is too much for a policy at the very
    instant at which it inherits it."""
    heir = reason in (Reason.LAG_RECORDS, Reason.LAG_BYTES, Reason.LAG_AGE) and party.given_s == world.now
    return party.name not in world.innocent or reason in INNOCENT or heir


def _consumer(world: World, subscription: Any) -> tuple[Party, Consumer] | None:
    for party in world.parties:
        for consumer in party.consumers.values():
            if consumer.subscription is subscription:
                return party, consumer
    return None


def _bury(world: World, name: str, payload: bytes, reason: Reason, key: str) -> None:
    world.count(f"dead letter {reason}")
    model = world.models.get(name)
    if model is not None:
        model.dead[reason] += 1
    world.publish(None, chance.DEAD, key, {}, [len(payload)], None, None)
