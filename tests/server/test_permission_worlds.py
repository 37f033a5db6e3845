"""Whatever clients ask for and operators change, nothing reaches a client that may not read it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from bench.wires.packets import encode_connect, encode_publish
from pamqp.commands import Basic
from tests.server.amqp_stage import House, method
from tests.server.permission_world import STEPS, USERS, Person, Rabbit, World
from tests.server.pretended import Socket
from tests.sim.seeds import seeds_of_the_day

from headway.core.message.record import Properties
from headway.core.permission import ALL_RIGHTS, Identity, Permission
from headway.server.mqtt.peer import MqttPeer
from headway.wire.mqtt.packets import Connect

SNAPSHOT, SELECTOR = ("snapshot", "true"), ("selector", "m > 0")
OPTIONS: tuple[tuple[tuple[str, str], ...], ...] = (
    (), (SNAPSHOT,), (("query", "true"),), (("conflate", "0s"),), (("order_by", "/n DESC"), ("top", "3")),
    (("order_by", "/n"), ("top", "2"), ("skip", "1"), SELECTOR), (("select", "max(/n) AS n, count(*) AS c"),),
    (("select", "min(/n) AS n, count(*) AS c"), SELECTOR), *[(SNAPSHOT, SELECTOR, ("out_of_focus", "true"))] * 4,
)  # fmt: skip


def payload(number: int) -> bytes:
    return b'{"n": %d, "m": %d}' % (number, number % 3)


STATES = ("a/#", "a/+", "a/b", "a/alice")


class StateWorld(World):
    """Clients mostly read a state: snapshots, queries, live pages, aggregates, keys out of focus and deleted."""

    def __init__(self, seed: int) -> None:
        self.topics: dict[bytes, str] = {}
        """Where each payload was published."""
        self.told: set[str] = set()
        """The kinds of things that were seen."""
        super().__init__(seed)

    def options(self) -> tuple[tuple[str, str], ...]:
        return self.dice.choice(OPTIONS)

    def usual(self) -> list[Permission]:
        some = Permission(
            user=self.dice.choice((None, *USERS)), publish=("a/#",), subscribe=(self.dice.choice(STATES),)
        )
        return [some] if self.dice.random() < 0.8 else []

    def filter(self) -> str:
        return self.dice.choice(STATES) if self.dice.random() < 0.7 else super().filter()

    def text(self) -> bytes:
        return payload(next(self.numbers))

    def allow(self, who: Person | Rabbit, topic: str, text: bytes) -> None:
        super().allow(who, topic, text)
        self.topics[text] = topic

    def saw(self, who: Person | Rabbit, name: str, text: bytes, told: dict[str, Any]) -> None:
        event = told.get("headway-event", "")
        self.told.add(event)
        if event.startswith("snapshot_"):
            return
        if not text:  # out of focus, or deleted: it tells of a key of that topic
            self.legit[text] = True
        elif b'"c"' in text:
            self.told.add("aggregates")
            number = json.loads(text)["n"]
            if number is None:
                return
            text = payload(number)
            name = self.topics[text]  # the record that the aggregate tells of
        self.reached(who, "subscribe", name, text)

    def act(self, one: Person) -> None:
        if self.dice.random() < 0.1:
            one.say(encode_publish(self.topic(), b"", qos=0, properties=Properties()))
        else:
            super().act(one)

    def act_rabbit(self, one: Rabbit) -> None:
        if self.dice.random() < 0.5:
            key = self.dice.choice(("#", "a.#", "a.*", "a.b", "a.alice", "*.b"))
            arguments = {"x-headway-topics": key} | {f"x-headway-{name}": value for name, value in self.options()}
            one.say(method(1, Basic.Consume(queue="amq.topic", consumer_tag=f"t{next(self.numbers)}", no_ack=True,
                                            arguments=arguments)))  # fmt: skip
        else:
            super().act_rabbit(one)


@pytest.mark.parametrize("seed", seeds_of_the_day(range(10)))
def test_nothing_of_a_state_reaches_who_may_not_read_it(seed: int) -> None:
    world = StateWorld(seed)
    for _ in range(STEPS):
        world.step()
    world.judge(1_000_000)
    assert not world.earlier, "the round is over"
    world.house.stop()


def test_the_worlds_of_states_have_all_there_is() -> None:
    told: set[str] = set()
    for seed in range(20):
        world = StateWorld(seed)
        for _ in range(STEPS):
            world.step()
        told |= world.told
        world.house.stop()
    assert {"snapshot_begin", "snapshot_end", "out_of_focus", "delete", "aggregates"} <= told


@pytest.mark.parametrize("seed", seeds_of_the_day(range(10)))
def test_nothing_reaches_who_may_not_read_it(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.judge(1_000_000)
    assert not world.earlier, "the round is over"
    world.house.stop()


@pytest.mark.parametrize("kind", [World, StateWorld])
def test_the_checker_sees_a_fault(kind: type[World]) -> None:
    """It would be told if the broker let everybody read everything."""
    found = 0
    for seed in range(20):
        world = kind(seed)
        world.house.permissions.rights = lambda user, client, **_: ALL_RIGHTS  # type: ignore[method-assign]
        try:
            for _ in range(STEPS):
                world.step()
        except AssertionError:
            found += 1
    assert found > 10


def test_removed_users_are_forgotten_where_there_are_no_permissions_too() -> None:
    """But for those who are still here, who get no rights of that name if there are permissions later."""
    house = House('[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n')

    def reload(*users: str) -> None:
        auth = house.settings.auth.model_copy(update={"users": dict.fromkeys(users, "x")})
        house.settings = replace(house.settings, auth=auth)
        house.permissions.reload(house.settings, house.now())
        house.run()

    reload("ann", "bob", "carl")
    sock = Socket()
    house.accept(sock, "mqtt", MqttPeer)
    sock.incoming.append(encode_connect(Connect(5, "b", True, 0, username="bob", password=b"right")))
    house.run()
    (connection,) = house.connections
    assert connection.peer_side.session is not None
    connection.peer_side.identity = Identity("bob")
    reload()
    assert house.permissions._gone == {"bob"}
    sock.incoming.append(b"")
    house.run()
    reload("dan")
    reload()
    assert house.permissions._gone == set()
