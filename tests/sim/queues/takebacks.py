"""What the broker takes back by itself, records that are in flight and queues: it has to have a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.queues.model import Entry, Flight

if TYPE_CHECKING:
    from tests.sim.queues.world import World


def taken_from(world: World, entry: Entry) -> None:
    """A record is handed out that is in flight: has the broker taken it back from who is gone, or is late?"""
    flight = entry.flight
    assert flight is not None
    if flight.id in flight.core.timed_out:
        _returned(world, flight)
        return
    session = flight.party.session
    assert flight.id not in flight.core.in_flight, f"{entry.number} is in flight to {flight.party.name}, and given"
    assert session is not None
    world.moved.append(flight)
    flight.model.back(entry)


def _returned(world: World, flight: Flight) -> None:
    if flight.returned:
        return
    patience_s = flight.patience_s
    assert world.may_return or patience_s, f"{flight.entry.number} was taken from {flight.party.name}"
    assert world.now - flight.sent_s >= max(0.3, patience_s) - 1e-6, f"{flight.entry.number} was taken back at once"
    world.count("returned")
    world.note("returned", flight.party.name, flight.entry.number)
    flight.returned = True
    if flight.entry.flight is flight and not flight.model.gone:
        flight.model.back(flight.entry)


def look(world: World) -> None:
    """What was taken back for taking too long, and which queues there are."""
    for party in world.parties:
        for number, channel in party.channels.items():
            for delivery_id in channel.timed_out:
                _returned(world, party.flights[number, delivery_id])
    reap(world)


def reap(world: World) -> None:
    """Queues that ended by themselves: had they a reason to?"""
    known = world.broker.registry.router.queues
    for name, model in list(world.models.items()):
        if known.get(name) is model.queue:
            continue
        terms = model.terms
        unused = not any(consumer.live for consumer in model.consumers)
        reasons = (
            terms.auto_delete and model.had_consumer and unused,
            terms.exclusive and model.owner is None,
            terms.idle_s is not None and unused and world.now >= model.used_s + terms.idle_s - 1e-6,
            world.may_delete and unused,
        )
        if terms.exclusive and not any(reasons):
            world.unexplained.append(model)  # its owner may be gone: an effect must say so
        else:
            assert any(reasons), f"{model} is gone: {terms}"
        world.count("queues ended")
        world.forget(model)
