"""What parties change in a world with queues: they declare queues and exchanges, bind, unbind, and consume."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.core.queue_wire import PLAIN
from tests.sim.queues import chance
from tests.sim.queues.model import QueueModel
from tests.sim.queues.party import Party
from tests.sim.queues.wiring import Hub, Tie

from headway.core.base.errors import Refused
from headway.core.consumer.request import QueueTerms
from headway.core.routing.matching.bindings import Binding, Destination, Exchange

if TYPE_CHECKING:
    from tests.sim.queues.world import World


def declare(world: World, party: Party, name: str, *, plain: bool = False) -> None:
    known = world.models.get(name)
    assert party.session is not None
    if known is not None:
        if known.owner not in (None, party):
            return
        again = world.broker.queues.declare(party.session, name, known.terms, PLAIN, world.now)
        assert again is known.queue
        known.used_s = world.now
        return
    terms = QueueTerms() if plain else chance.terms(world.rng, may_refuse=not world.refusing)
    if not world.readable:  # a record's priority cannot be read then either
        terms = msgspec.structs.replace(terms, priorities=0)
    world.refusing |= terms.refuses
    world.note("declares", party.name, name, terms)
    made = world.broker.queues.declare(party.session, name, terms, PLAIN, world.now)
    model = QueueModel(made, world.now)
    model.owner = party if terms.exclusive else None
    world.add(model)


def add_exchange(world: World, name: str, kind: str, *, auto_delete: bool, alternate: str | None) -> None:
    world.broker.queues.declare_exchange(Exchange(name, kind, auto_delete=auto_delete, alternate=alternate))
    hub = world.wiring.hubs[name] = Hub(kind, auto_delete=auto_delete, alternate=alternate)
    assert not hub.ties


def bind(world: World, party: Party, tie: Tie, *, tied: bool = True) -> None:
    kind, name = tie.to
    binding = Binding(tie.source, Destination(kind, name), tie.key, tie.wanted)  # type: ignore[arg-type]
    model = world.models.get(name) if kind == "queue" else None
    locked = model is not None and model.owner not in (None, party)
    assert party.session is not None
    world.note("binds" if tied else "unbinds", party.name, tie)
    change = world.broker.queues.bind if tied else world.broker.queues.unbind
    if locked:
        with pytest.raises(Refused):
            change(party.session, binding)
        return
    change(party.session, binding)
    if tied:
        world.wiring.tie(tie)
    else:
        world.wiring.untie(tie)


def rewire(world: World) -> None:
    """Bind, unbind, add or remove something."""
    rng, dice = world.rng, world.rng.random()
    parties = [party for party in world.parties if party.connected]
    if not parties:
        return
    party = rng.choice(parties)
    absent = [name for name in chance.EXCHANGES if name not in world.wiring.hubs]
    ties = [tie for tie in world.wiring.all() if tie.source != chance.DEAD]
    if absent and dice < 0.3:
        name = rng.choice(absent)
        alternate = "e.rest" if name != "e.rest" and rng.random() < 0.3 else None
        world.note("exchange", name)
        add_exchange(world, name, chance.EXCHANGES[name], auto_delete=rng.random() < 0.2, alternate=alternate)
    elif dice < 0.35:
        name = rng.choice([name for name in chance.EXCHANGES if name in world.wiring.hubs] or [""])
        if name:
            world.note("deletes exchange", name)
            list(world.broker.queues.delete_exchange(name, if_unused=False))
            world.wiring.remove(name)
    elif dice < 0.45:
        bind_alike(world)
    elif ties and dice < 0.55:
        bind(world, party, rng.choice(ties), tied=False)
    else:
        source = rng.choice([name for name in world.wiring.hubs if name and name != chance.DEAD])
        kind = world.wiring.hubs[source].kind
        to = ("exchange", rng.choice([name for name in world.wiring.hubs if name and name != chance.DEAD]))
        if rng.random() < 0.85 and world.models:
            to = ("queue", rng.choice(list(world.models)))
        key = rng.choice(chance.PATTERNS if kind == "topic" else chance.KEYS)
        wanted = tuple(sorted(rng.choice(chance.WANTED).items())) if kind == "headers" else ()
        bind(world, party, Tie(source, to, key, wanted))


def bind_alike(world: World) -> None:
    """Bind one queue as another is, so that they share a lane."""
    names = [name for name in world.models if name != chance.DEAD]
    if not names:
        return
    like, other = world.rng.choice(names), world.rng.choice(names)
    owner = world.models[other].owner or world.parties[-1]
    if not owner.connected:
        return
    for tie in [tie for tie in world.wiring.all() if tie.to == ("queue", other)]:
        bind(world, owner, tie, tied=False)
    for tie in [tie for tie in world.wiring.all() if tie.to == ("queue", like)]:
        bind(world, owner, tie._replace(to=("queue", other)))


def consume(world: World, party: Party) -> None:
    models = [model for model in world.models.values() if model.owner in (None, party)]
    if party.manner.healthy and world.rng.random() < 0.4:  # not all of them at one queue
        models = [model for model in models if not model.consumers] or models
    if not models:
        return
    model = world.rng.choice(models)
    # Who never acknowledges is healthy as long as it need not.
    acks = False if not party.manner.acks and world.rng.random() < 0.3 else None
    if party.consume(model, acks=acks):
        world.note("consumes", party.name, model.name)
