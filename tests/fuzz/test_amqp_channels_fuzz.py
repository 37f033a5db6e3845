"""Whatever clients do, in whatever order: each is told what the protocol has for it, nothing else, and nobody else
notices; and when they are gone nothing of them is left.

Theory of operation. Clients take steps that were drawn (``STEPS``). Each knows no more than what it has heard and what
it has said, and that is all that is judged by (``Life``, ``Watch``): until the end the broker is asked nothing but what
it holds to be in flight. Clients keep to the rules about channels, for else they would not live long; what breaks a
rule on purpose is a step like any other.

What goes wrong is told with the shortest plan that it goes wrong with: ``play`` takes it.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import cycle
from random import Random
from typing import NamedTuple

import pytest
from pamqp.commands import Basic, Connection
from tests.fuzz.amqp_actors import Step
from tests.fuzz.amqp_moves import cut_off, expel, vanish
from tests.fuzz.amqp_steps import GOOD, HARD_FAULTS, NUMBERS, OFTEN, SOFT_FAULTS, STEPS, WORLD
from tests.fuzz.amqp_watch import ANSWERS
from tests.fuzz.amqp_world import World, nothing_is_left, works
from tests.sim.seeds import seeds_of_the_day

pytestmark = pytest.mark.filterwarnings("ignore:This command is deprecated")

SEEDS = 40
BLOCKS = sorted({seed // SEEDS for seed in seeds_of_the_day(range(3 * SEEDS))})
"""Each has so many seeds."""


class Plan(NamedTuple):
    steps: list[Step]
    sizes: list[int]
    """Of the pieces in which what they say arrives, over and over; empty: all in one."""
    ends: list[int]
    """How each of them ends."""


def drawn(seed: int) -> Plan:
    rng = Random(seed)
    groups = [[*GOOD, *OFTEN * 3], [*SOFT_FAULTS], [*HARD_FAULTS], [*WORLD]]

    def step() -> Step:
        what = rng.choice(rng.choices(groups, [75, 8, 3, 8])[0])
        return Step(
            what, rng.choice([0, 0, 0, 1, 1, 2]), rng.choice([1, 1, 1, 2, 3]), rng.choice(NUMBERS), rng.random() < 0.6
        )

    return Plan(
        [step() for _ in range(rng.randint(10, 70))], [rng.randint(1, 300) for _ in range(rng.randrange(4))],
        [rng.randrange(4) for _ in range(3)],
    )  # fmt: skip


def play(plan: Plan) -> Counter[str]:
    """What they heard."""
    ends = cycle(plan.ends)
    world = World(plan.sizes, lambda: next(ends))
    for step in plan.steps:
        world.take(step)
    for actor in world.actors:
        actor.client.reads = True
        for channel, life in actor.watch.lives.items():
            actor.finish(channel, life)
    world.settle()
    world.settle()
    bystander = works(world.house)
    for actor, how in zip(world.actors, plan.ends, strict=True):
        if not actor.gone:
            [vanish, STEPS["close"], cut_off, expel][how](actor, Step(""))
        world.settle()
    bystander.leave()
    for actor in world.actors:
        assert actor.gone
        assert not (actor.watch.over and actor.client.tail), "the end of it is not whole"
    nothing_is_left(world)
    return world.heard


def shorter(plan: Plan, error: Exception, tries: int = 300) -> Plan:
    """Fewer steps, after which the same goes wrong."""
    size = len(plan.steps) // 2
    while size and tries > 0:
        at, found = 0, False
        while at < len(plan.steps) and tries > 0:
            tries -= 1
            other = plan._replace(steps=plan.steps[:at] + plan.steps[at + size :])
            if place_of(error_of(other)) == place_of(error):
                plan, found = other, True
            else:
                at += size
        size = size // 2 if size > 1 or not found else 1
    return plan


def error_of(plan: Plan) -> Exception | None:
    try:
        play(plan)
    except Exception as error:  # noqa: BLE001  whatever it is, that it is the same is all that is asked
        return error
    return None


def place_of(error: Exception | None) -> object:
    """Where it was raised."""
    trace = error.__traceback__ if error is not None else None
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return type(error), trace and (trace.tb_frame.f_code, trace.tb_lineno)


@cache
def heard_in(block: int) -> Counter[str]:
    heard: Counter[str] = Counter()
    for seed in range(block * SEEDS, (block + 1) * SEEDS):
        plan = drawn(seed)
        try:
            heard += play(plan)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r} after {shorter(plan, error)}") from error
    return heard


@pytest.mark.parametrize("block", BLOCKS)
def test_whatever_clients_do(block: int) -> None:
    assert heard_in(block)


def test_they_hear_everything_there_is_to_hear() -> None:
    """Or the steps would show little."""
    heard = sum(map(heard_in, BLOCKS), Counter[str]())
    answers = {answer.name for kinds in ANSWERS.values() for answer in kinds}
    others = (Basic.Deliver, Basic.Return, Basic.Ack, Basic.Nack, Basic.Cancel, Connection.Blocked,
              Connection.Unblocked)  # fmt: skip
    codes = {"Channel.Close": (311, 403, 404, 405, 406, 506), "Connection.Close": (320, 501, 502, 503, 504, 505, 540)}
    wanted = {*answers, *(other.name for other in others)}
    wanted |= {f"{name} {code}" for name, known in codes.items() for code in known}
    assert not wanted - set(heard)
