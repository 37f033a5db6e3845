"""Worlds in which clients ask for anything, and operators change what they may.

A world is seeded: MQTT and AMQP clients of three users, and of none, on the real engine without sockets. They
subscribe, publish, retain, leave wills, declare, bind, consume, poll, come back to kept sessions; and the operator
reloads other permissions. A reload goes through the sessions in slices, with clients at work in between: they publish
by the new permissions alone, and what stands is judged when the last slice is done. The checker knows the permissions
as the config has them, and has code of its own for all the rest.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any

from bench.wires.packets import encode_ack, encode_connect, encode_publish, encode_subscribe
from pamqp.commands import Basic, Channel, Connection, Exchange, Queue
from tests.passwords import cheap_hash
from tests.server.amqp_stage import Client, Content, House, Socket, message, method

from headway.core.base.deferred import DeferredWork, WorkSteps
from headway.core.message.record import Properties, Run
from headway.core.permission import Permission
from headway.server.mqtt.peer import MqttPeer
from headway.wire.mqtt.decoder import MqttDecoder
from headway.wire.mqtt.packets import NEVER, ConnAck, Connect, Publish, PubRel, TopicRequest, WillMessage

USERS = ("alice", "bob", "carol")
LISTENERS = """
[listeners.mqtt]
url = "mqtt://127.0.0.1:0"
allow_anonymous = true
[[topic]]
filter = "a/#"
"""
AUTH = "[auth.users]\n" + "".join(f'{name} = "{cheap_hash("right")}"\n' for name in USERS)
TOPICS = ("a", "a/b", "a/alice", "a/bob", "b/x", "c/m1", "c/m2/d", "dead")
FILTERS = ("#", "+", "a/#", "a/+", "+/b", "b/#", "a/b", "c/+/#", "a/alice", "dead", "$SYS/#", "a/+/#", "c/#")
GRANTED = (*FILTERS[2:], "a/%u", "c/%c/#", "c/%c", "$queue/q1", "$queue/%u/#", "$exchange/x/a/#", "$exchange/x/#", "#",
           "$queue/#")  # fmt: skip
QUEUES = ("q1", "alice.q", "bob.q")
STEPS = 120


# -- the checker -------------------------------------------------------------------------------------------------------


def fits(filter: str, topic: str) -> bool:
    """Whether a filter matches, by MQTT's text."""
    if filter[0] in "+#" and topic.startswith("$"):
        return False
    pattern = re.escape(filter).replace(r"\+", "[^/]*").replace("/\\#", "(/.*)?").replace("\\#", ".*")
    return re.fullmatch(pattern, topic, re.DOTALL) is not None


def granted(rules: list[Permission], operation: str, user: str, client: str) -> list[str]:
    filters = [one for rule in rules if rule.user in (None, user or "nobody") for one in getattr(rule, operation)]
    return [
        one.replace("%u", user).replace("%c", client) for one in filters
        if not ("%u" in one and (not user or "." in user)) and not (one.startswith("$queue") and "." in client)
    ]  # fmt: skip


# -- the world ---------------------------------------------------------------------------------------------------------


class Slices(DeferredWork):
    """The rounds of reloads, which go on only as far as the world lets them."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        super().__init__()
        self.held: OrderedDict[object, deque[WorkSteps]] = OrderedDict()

    def begin(self, steps: WorkSteps, now: float, *, client: object = None) -> None:
        self.now = max(self.now, now)
        self.held.setdefault(client, deque()).append(steps)

    def some(self, work: int, now: float) -> None:
        self.begun, self.held = self.held, OrderedDict()
        self._left = work
        self._go_on(now)
        self.held, self.begun = self.begun, OrderedDict()


class Person:
    """An MQTT client, and what it may have."""

    def __init__(self, world: World, user: str, client: str) -> None:
        self.world, self.user, self.client = world, user, client
        self.sock = Socket()
        self.connection = world.house.accept(self.sock, "mqtt", MqttPeer)
        self.decoder = MqttDecoder(role="client", version=5)
        will = None
        if world.dice.random() < 0.4:
            topic, text = world.topic(), world.text()
            will = WillMessage(topic, text, world.dice.choice((0, 1)), world.dice.random() < 0.5)
            world.allow(self, topic, text)
        keep = world.dice.random() < 0.6
        self.say(encode_connect(Connect(
            5, client, not keep, 0, session_expiry_s=NEVER if keep else 0, username=user or None,
            password=b"right" if user else None, will=will,
        )))  # fmt: skip

    @property
    def open(self) -> bool:
        return self.connection.open and not self.sock.shut

    def say(self, packet: bytes) -> None:
        if self.open:
            self.sock.incoming.append(packet)
        self.world.house.run()
        self.world.look()

    def look(self) -> None:
        data = bytes(self.sock.taken)
        self.sock.taken.clear()
        for item in self.decoder.feed(data):
            if isinstance(item, Publish | Run):
                run, qos = (item.run, item.qos) if isinstance(item, Publish) else (item, 0)
                for index in range(len(run)):
                    self.world.saw(self, run.topic, run.payload(index), dict(run.properties.user))
                if qos and isinstance(item, Publish) and self.open and self.world.dice.random() < 0.6:
                    self.sock.incoming.append(encode_ack(4 if qos == 1 else 5, item.packet_id))
            elif isinstance(item, PubRel) and self.open:
                self.sock.incoming.append(encode_ack(7, item.packet_id))
            elif isinstance(item, ConnAck) and item.code:
                self.world.refusals += 1
        assert self.decoder.error is None, self.decoder.error


class Rabbit:
    """An AMQP client of one channel."""

    def __init__(self, world: World, user: str, client: str) -> None:
        self.world, self.user, self.client = world, user, client
        self.at = Client(world.house, client, begin=False)
        self.queue = ""
        at = self.at
        at.send(b"AMQP\x00\x00\x09\x01")
        login = (user, "right") if user else ("guest", "guest")
        at.send(method(0, at.start_ok(*login)))
        at.send(method(0, Connection.TuneOk(0, 0, 0)))
        at.send(method(0, Connection.Open()))
        at.send(method(1, Channel.Open()))
        self.heard = 0
        self.look()

    @property
    def open(self) -> bool:
        return self.at.open and not self.at.sock.shut

    def say(self, *pieces: bytes) -> None:
        if self.open:
            self.at.send(*pieces)
        self.world.look()

    def look(self) -> None:
        self.at.run()
        fresh, self.heard = self.at.heard[self.heard :], len(self.at.heard)
        for number, heard in fresh:
            if isinstance(heard, Queue.DeclareOk) and heard.queue.startswith("amq.gen"):
                self.queue = heard.queue
            if isinstance(heard, Channel.Close):
                self.world.refusals += heard.reply_code == 403
                self.queue = ""
                self.at.send(method(number, Channel.CloseOk()), method(number, Channel.Open()))
            if isinstance(heard, Content):
                self._took(heard)

    def _took(self, heard: Content) -> None:
        topic = heard.method.routing_key.replace(".", "/")
        exchange = heard.method.exchange
        name = topic if exchange == "amq.topic" else f"$exchange/{exchange}/{topic}"
        queue = getattr(heard.method, "consumer_tag", None) or self.world.asked
        if queue in QUEUES:  # who may read a queue may read what is in it
            self.world.reached(self, "subscribe", "$queue/" + queue, heard.body, queue=queue)
        elif exchange:
            self.world.saw(self, name, heard.body, heard.headers)


class World:
    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.house = House(LISTENERS + AUTH + '[[permission]]\npublish = ["none"]\n')
        self.numbers = count()
        self.rules: list[Permission] = []
        self.earlier: list[list[Permission]] = []
        """The permissions before reloads whose round is not over."""
        self.slices = self.house.broker.registry.rounds = Slices()
        self.between = 0
        """Deliveries that only earlier permissions allowed."""
        self.clients: dict[str, Person | Rabbit] = {}
        self.legit: dict[bytes, bool] = {}
        """Whether each payload was published by somebody who may."""
        self.refusals = self.deliveries = 0
        self.asked = ""
        self.reload()

    def topic(self) -> str:
        return self.dice.choice(TOPICS)

    def options(self) -> tuple[tuple[str, str], ...]:
        """Of a subscription."""
        return (("snapshot", "true"),) if self.dice.random() < 0.2 else ()

    def usual(self) -> list[Permission]:
        """Of which there is more than chance would have it."""
        return []

    def filter(self) -> str:
        return self.dice.choice(FILTERS)

    def text(self) -> bytes:
        return b"%d" % next(self.numbers)

    def allow(self, who: Person | Rabbit, topic: str, text: bytes) -> None:
        """Note whether this may be published: now, as the checker sees it."""
        names = [topic]
        if topic.startswith("$queue/"):
            names.append(topic.replace(".", "/"))
        filters = granted(self.rules, "publish", who.user, who.client)
        self.legit[text] = any(fits(filter, name) for filter in filters for name in names)

    def saw(self, who: Person | Rabbit, name: str, text: bytes, told: dict[str, Any]) -> None:
        """Somebody was given a record of a topic or an exchange; ``told``: with these user properties."""
        self.reached(who, "subscribe", name, text)

    def reached(self, who: Person | Rabbit, operation: str, name: str, text: bytes, *, queue: str = "") -> None:
        self.deliveries += 1
        assert name.startswith("$SYS/") or self.legit.get(text), f"{text!r} at {name} was never to be published"
        filters = granted(self.rules, operation, who.user, who.client)
        names = [name, name.replace(".", "/")] if queue else [name]
        if any(fits(filter, one) for filter in filters for one in names):
            return
        before = [filter for rules in self.earlier for filter in granted(rules, operation, who.user, who.client)]
        assert any(fits(filter, one) for filter in before for one in names), (
            f"{name} reached {who.client} of {who.user!r}, who may read {filters}, and before {before}"
        )
        self.between += 1

    def look(self) -> None:
        """Everybody reads, until nothing more comes."""
        seen = -1
        while seen != self.deliveries:
            seen = self.deliveries
            for one in list(self.clients.values()):
                one.look()
            self.house.run()

    def reload(self) -> None:
        dice = self.dice
        self.look()
        self.earlier.append(self.rules)
        self.rules = [
            Permission(user=dice.choice((None, *USERS)), publish=tuple(dice.sample(GRANTED, dice.randint(0, 4))),
                       subscribe=tuple(dice.sample(GRANTED, dice.randint(0, 4))),
                       declare=tuple(dice.sample(("$queue/#", "$queue/%u/#", "$queue/q1", "$exchange/x"), 2)))
            for _ in range(dice.randint(1, 6))
        ] + self.usual()  # fmt: skip
        fresh = replace(self.house.settings, permissions=tuple(self.rules))
        self.house.settings = fresh
        self.house.permissions.reload(fresh, self.house.now())
        self.house.run()
        self.look()

    def judge(self, work: int) -> None:
        """A slice of the round."""
        self.slices.some(work, self.house.now())
        self.house.run()
        self.look()
        if not self.slices.held:
            self.earlier.clear()

    # -- what happens -----------------------------------------------------------------------------------------------

    def step(self) -> None:
        dice = self.dice
        roll = dice.random()
        if self.slices.held:
            self.judge(dice.choice((0, 0, 1, 3, 10, 1_000_000)))
        if roll < 0.05:
            self.reload()
        elif roll < 0.2 or not self.clients:
            self.come()
        elif roll < 0.25:
            self.go(dice.choice(list(self.clients)))
        elif roll < 0.28:
            self.house.pass_time(dice.choice((0.3, 2.0)))
            self.look()
        else:
            one = self.clients[dice.choice(list(self.clients))]
            if isinstance(one, Person):
                self.act(one)
            else:
                self.act_rabbit(one)

    def come(self) -> None:
        user = self.dice.choice((*USERS, ""))
        if self.dice.random() < 0.6:
            client = self.dice.choice(("m1", "m2", "m3"))
            self.clients.pop(client, None)
            self.clients[client] = one = Person(self, user, client)
            one.look()
        elif len(self.clients) < 8:
            client = f"r{next(self.numbers)}"
            self.clients[client] = Rabbit(self, user, client)

    def go(self, name: str) -> None:
        one = self.clients.pop(name)
        sock = one.sock if isinstance(one, Person) else one.at.sock
        one.look()
        sock.incoming.append(b"")
        self.house.run()
        self.look()

    def act(self, one: Person) -> None:
        dice = self.dice
        if dice.random() < 0.5:
            filter = self.filter()
            filter = f"$share/g/{filter}" if dice.random() < 0.25 else filter
            one.say(encode_subscribe(1, [TopicRequest(filter, dice.choice((0, 1, 2)))], user=self.options()))
            return
        topic, text, qos = self.topic(), self.text(), dice.choice((0, 1, 2))
        self.allow(one, topic, text)
        one.say(encode_publish(topic, text, qos=qos, packet_id=next(self.numbers) % 60_000 + 1 if qos else 0,
                               retain=dice.random() < 0.3, properties=Properties()))  # fmt: skip

    def act_rabbit(self, one: Rabbit) -> None:
        dice, queue = self.dice, self.dice.choice((*QUEUES, ""))
        match dice.randint(0, 6):
            case 0:
                dead: dict[str, Any] = {"x-dead-letter-exchange": dice.choice(("amq.topic", "x")), "x-max-length": 1}
                dead |= {"x-dead-letter-routing-key": "dead"} if dice.random() < 0.5 else {}
                arguments = dead if dice.random() < 0.3 else {}
                one.say(method(1, Queue.Declare(queue=queue, exclusive=not queue, arguments=arguments)))
            case 1:
                one.say(method(1, Exchange.Declare(exchange="x", exchange_type="topic")))
            case 2:
                key = dice.choice(("#", "a.#", "a.*", "b.x", "*.b", "a", "dead"))
                exchange = dice.choice(("amq.topic", "x"))
                one.say(method(1, Queue.Bind(queue=queue or one.queue, exchange=exchange, routing_key=key)))
            case 3:
                tag = queue or f"own{next(self.numbers)}"
                one.say(method(1, Basic.Consume(queue=queue or one.queue, consumer_tag=tag, no_ack=True)))
            case 4:
                self.asked = queue or "own"
                one.say(method(1, Basic.Get(queue=queue or one.queue, no_ack=True)))
            case 5 | 6:
                text, exchange = self.text(), dice.choice(("amq.topic", "x", ""))
                key = dice.choice(QUEUES) if not exchange else self.topic().replace("/", ".")
                topic = key.replace(".", "/")
                name = f"$queue/{key}" if not exchange else topic if exchange == "amq.topic" else f"$exchange/x/{topic}"
                self.allow(one, name, text)
                one.say(*message(1, key, text, exchange))
