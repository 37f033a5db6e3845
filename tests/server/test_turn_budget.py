"""A connection's share of a turn: who asks for a great deal at once is served in turn, in order."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, pairwise, product
from math import inf

import pytest
from bench.wires.packets import (
    connect,
    encode_connect,
    encode_disconnect,
    encode_pingreq,
    encode_publish,
    encode_subscribe,
    encode_unsubscribe,
)
from pamqp import base
from pamqp.commands import Basic, Channel, Confirm, Queue
from pamqp.commands import Connection as Connection091
from tests.server.amqp_stage import Client, House, message, method
from tests.server.greedy_stage import Greedy
from tests.server.pretended import Loop, Socket
from tests.server.test_amqp1_greedy import client as amqp1_client
from tests.server.test_amqp1_greedy import sender, transfer

from headway.core.message.record import Properties
from headway.server.amqp.peer import AmqpPeer
from headway.server.connections.connection import Connection
from headway.server.connections.turn_budget import (
    BUDGET_WORK,
    GREETING_WORK,
    LOGIN_WORK,
    LONG_S,
    SUBSCRIBE_WORK,
    TURN_WORK,
    TurnWork,
)
from headway.server.mqtt.peer import MqttPeer
from headway.server.transport import PlainStream
from headway.wire.amqp1 import values as writing
from headway.wire.mqtt.decoder import MqttDecoder
from headway.wire.mqtt.packets import Connect, Item, PingResp, Publish, SubAck, TopicRequest, UnsubAck

MANY = 10_000
Asked = tuple[list[bytes], int]
"""Publishes, and the work that each of them is at least."""
READ = 1 << 22


class Person:
    """An MQTT client."""

    def __init__(self, house: House, name: str, opening: bytes = b"", version: int = 5) -> None:
        self.sock = Socket()
        pool = house.broker.registry.pool_of("mqtt")
        stream = PlainStream(self.sock)  # type: ignore[arg-type]
        self.connection = Connection(house, stream, name, "mqtt", pool, house.now())  # type: ignore[arg-type]
        house.connections.add(self.connection, inf)  # nobody sweeps
        self.connection.start(MqttPeer(house, self.connection, house.settings.listeners["mqtt"]))
        self.connection.read_bytes = READ
        self._decoder = MqttDecoder(role="client", version=version)
        self._read = 0
        self.send(opening or connect(name))
        house.run()
        assert len(self.heard()) == 1, "CONNACK"

    def send(self, *packets: bytes) -> None:
        """All of it is there to be read at once."""
        self.sock.incoming.append(b"".join(packets))

    def heard(self) -> list[Item]:
        """What was said to it since it was last asked."""
        data, self._read = bytes(self.sock.taken[self._read :]), len(self.sock.taken)
        return self._decoder.feed(data)

    def payloads(self) -> list[bytes]:
        found: list[bytes] = []
        for item in self.heard():
            run = item.run if isinstance(item, Publish) else item
            found += [run.payload(index) for index in range(len(run))]  # type: ignore[arg-type, union-attr]
        return found


@pytest.fixture
def house() -> House:
    made = House('[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n')
    made.read_bytes = made.usual_read_bytes = READ
    return made


def publishes(retain: bool = False) -> list[bytes]:
    return [encode_publish(f"t/{number}", b"%d" % number, retain=retain) for number in range(MANY)]


def subscribes() -> list[bytes]:
    return [encode_subscribe(1, [TopicRequest(f"f/{number}") for number in range(1000)])]


def in_many_lanes(house: House) -> list[bytes]:
    """1,024 filters that match one topic, on which little is published, and no two messages alike."""
    for start in (0, 512):  # of two clients, because one may not have so many
        Person(house, f"other {start}").send(*(
            encode_subscribe(1, [TopicRequest("/".join("+t"[number >> bit & 1] for bit in range(10)))])
            for number in range(start, start + 512)
        ))  # fmt: skip
    house.run()
    return [
        encode_publish("/".join("t" * 10), b"x", qos=1, packet_id=number, dup=bool(number % 2))
        for number in range(1, 21)
    ]


def through_many_selectors(house: House) -> list[bytes]:
    """200 selectors that look at each record of one topic, and want it."""
    other = Person(house, "other")
    for number in range(200):
        entry = TopicRequest("/".join("+t"[number >> bit & 1] for bit in range(8)))
        other.send(encode_subscribe(1, [entry], user=(("selector", f"n > {number}"),)))
    house.run()
    return [encode_publish("/".join("t" * 8), b"x", properties=Properties(user=(("n", "1000"),)))] * 1000


@pytest.mark.parametrize(
    "asked", [lambda _: publishes(), lambda _: publishes(retain=True), lambda _: subscribes(), in_many_lanes,
              through_many_selectors],
    ids=["publishes", "retained", "subscribes", "lanes", "selectors"],
)  # fmt: skip
def test_others_are_served_before_one_that_asks_for_much_is_done(
    house: House, asked: Callable[[House], list[bytes]]
) -> None:
    greedy, reader, modest = (Person(house, name) for name in ("greedy", "reader", "modest"))
    reader.send(encode_subscribe(1, [TopicRequest("modest")]))
    much = asked(house)
    house.run()
    reader.heard()
    greedy.send(*much, b"\xc0\0")
    modest.send(encode_publish("modest", b"here"))
    loop, steps = house.pretended, 0
    while not reader.payloads():
        loop.once()
        steps += 1
        assert steps < 5
    assert PingResp() not in greedy.heard(), "it is not done yet"
    assert "turn" in greedy.connection.reading_paused_by, "nor is it read"
    house.run()
    assert greedy.heard()[-1] == PingResp()
    assert not greedy.connection.reading_paused_by


def on_new_topics(house: House, qos: int) -> Asked:
    """1,024 filters that each topic has to be held against, level by level; none matches."""
    filters = [TopicRequest("/".join(way) + "/x") for way in product("a+", repeat=10)]
    for half in (filters[:512], filters[512:]):  # of two clients, because one may not have so many
        Person(house, f"other {half[0].filter}").send(encode_subscribe(1, half))
    house.run()
    return [encode_publish("a/" * 10 + f"{n}", b"x", qos=qos, packet_id=n + 1) for n in range(200)], 2048 // 8


def test_a_client_may_have_wildcards_in_so_many_places(house: House) -> None:
    """A topic is held against one filter of each kind at most, so this bounds the work of each new topic."""
    client = Person(house, "client")
    client.send(encode_subscribe(1, [TopicRequest("/".join(way)) for way in product("a+", repeat=10)]))
    client.send(encode_subscribe(2, [TopicRequest("+/a/a/a/a/a/a/a/a/b"), TopicRequest("a/+/+/+/+/+/+/a/b")]))
    client.send(encode_unsubscribe(3, ["/".join(["a"] * 9 + ["+"])]))
    client.send(encode_subscribe(4, [TopicRequest("a/+/+/+/+/+/+/a/b")]))
    house.run()
    first, second, _, last = client.heard()
    assert isinstance(first, SubAck)
    assert isinstance(second, SubAck)
    assert isinstance(last, SubAck)
    assert first.codes == (0,) * 513 + (0x97,) * 511
    assert first.reason is not None
    assert "wildcards in 512 different places" in first.reason
    assert (second.codes, last.codes) == ((0, 0x97), (0,))


def beside_selectors(house: House, qos: int) -> Asked:
    """200 selectors that look at each record of one topic or the other, and want none: all runs are of one record."""
    other = Person(house, "other")
    for number, way in enumerate(islice(product("t+", repeat=8), 200)):
        user = (("selector", f"n > {number} AND n < 0"),)
        other.send(encode_subscribe(1, [TopicRequest("/".join(way) + "/+")], user=user))
    house.run()
    return [encode_publish("t/" * 8 + f"{n % 2}", b'{"n": 5}', qos=qos, packet_id=n + 1) for n in range(500)], 200 // 4


def under_many_keys(house: House) -> Asked:
    """New ones, all of them, and nobody is there."""
    keys = (["%x" % (100 * n + key) for key in range(100)] for n in range(200))
    frames = [message(1, f"k{n}", b"x", "amq.direct", headers={"CC": these}) for n, these in enumerate(keys)]
    return [b"".join(one) for one in frames], 100


def to_a_pattern_of_many_wildcards(house: House) -> Asked:
    """It does not match, and neither the last word of the key nor the number of its words shows that."""
    bind = Queue.Bind(queue="q", exchange="amq.topic", routing_key=".".join([*["#", "a"] * 30, "b", "#", "a"]))
    Client(house, "other").say(Queue.Declare(queue="q"), bind)
    frames = [message(1, ".".join([str(n)] + ["a"] * 50), b"x", "amq.topic") for n in range(200)]
    return [b"".join(one) for one in frames], 25 * 50 // 8


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("asked", [on_new_topics, beside_selectors])
def test_what_nobody_gets_is_work_all_the_same(house: House, asked: Callable[[House, int], Asked], qos: int) -> None:
    publishes, work = asked(house, qos)
    greedy = Person(house, "greedy")
    greedy.send(*publishes)
    assert_served_in_turns(house, len(publishes), work)


@pytest.mark.parametrize("asked", [under_many_keys, to_a_pattern_of_many_wildcards])
def test_what_nobody_gets_by_amqp_is_work_all_the_same(house: House, asked: Callable[[House], Asked]) -> None:
    publishes, work = asked(house)
    greedy = Client(house, "greedy")
    greedy.connection.read_bytes = READ
    greedy.sock.incoming.append(b"".join(publishes))
    assert_served_in_turns(house, len(publishes), work)


def assert_served_in_turns(house: House, publishes: int, work: int) -> None:
    """Each of them is at least so much work, and no turn has more of them than that allows."""
    registry, most = house.broker.registry, 0
    before = first = registry.totals.published_records
    while house.pretended.once():
        most, before = max(most, registry.totals.published_records - before), registry.totals.published_records
    assert before - first == publishes
    assert most <= (TURN_WORK + BUDGET_WORK) // work + 1


def amqp1_transfers(house: House) -> tuple[Greedy, bytes]:
    """No two of them are neighbours that belong together."""
    greedy = amqp1_client(house)
    greedy.say(sender(0, "queue://q"))
    headers = [writing.described(0x70, writing.list_of([writing.boolean(one)])) for one in (True, False)]
    return greedy, b"".join(transfer(0, at, b"x", headers[at % 2]) for at in range(1000))


def amqp_methods(house: House, *said: base.Frame) -> tuple[Greedy, bytes]:
    login = (Connection091.StartOk({}, "PLAIN", "\0guest\0guest"), Connection091.TuneOk(0, 131_072, 0),
             Connection091.Open())  # fmt: skip
    opening = b"AMQP\0\0\x09\1" + b"".join(method(0, one) for one in login)
    greedy = Greedy(house, AmqpPeer, opening, method(1, Channel.Open()) + method(1, Queue.Declare(queue="q")))
    return greedy, b"".join(method(1, one) for one in said)


def mqtt_packets(house: House, packets: bytes) -> tuple[Greedy, bytes]:
    return Greedy(house, MqttPeer, connect("greedy")), packets


@pytest.mark.parametrize(
    ("asked", "work"), [
        (amqp1_transfers, 10_000),
        (lambda house: amqp_methods(house, *[Queue.Declare(queue="q", passive=True)] * 1000), 8000),
        (lambda house: amqp_methods(house, *[Basic.Get(queue="q")] * 1000), 8000),
        (lambda house: mqtt_packets(house, b"\x62\2\0\1" * 16_000), 4000),
        (lambda house: mqtt_packets(house, b"".join(
            encode_publish(f"t/{at % 2}", b"x", qos=1, packet_id=1) for at in range(1000))), 3000),
        (lambda house: mqtt_packets(house, encode_publish("$t", b"", qos=1, packet_id=1) * 10_000), 10_000),
        (lambda house: mqtt_packets(house, b"".join(
            encode_publish("t", b"x" * (at % 2)) for at in range(10_000))), 5000),
        (lambda house: mqtt_packets(house, encode_publish("keyed/t", b'{"id":1}') * 5000), 8192),
    ], ids=["transfers", "passive declares", "gets", "PUBREL", "QoS 1", "refused", "sizes", "keys"],
)  # fmt: skip
def test_what_takes_longer_counts_as_more(asked: Callable[[House], tuple[Greedy, bytes]], work: int) -> None:
    """Small commands that a client may say by the thousand: to read them and to carry them out both count."""
    house = House('[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n[[topic]]\nfilter = "keyed/#"\nkey = "/id"\n')
    greedy, said = asked(house)
    assert greedy.turns(said) >= work // BUDGET_WORK
    assert greedy.connection.open
    assert not greedy.connection.reading_paused_by


def test_what_takes_longer_than_it_counts_makes_turns_smaller_until_it_is_over(house: House) -> None:
    """A processor that needs ten times as long for a record as a unit of work stands for."""
    totals = house.broker.registry.totals
    price_s = 10 * LONG_S / TURN_WORK
    house.turn_work = TurnWork(lambda: totals.published_records * price_s)
    crowd = [Person(house, f"c{number}") for number in range(8)]
    for one in crowd:
        one.send(*publishes()[:4000])
    done = [totals.published_records]
    while house.pretended.once():
        done.append(totals.published_records)
    steps = [later - before for before, later in pairwise(done)]
    assert done[-1] == 8 * 4000
    assert max(steps) <= TURN_WORK + 2 * BUDGET_WORK, "nothing is known at first"
    late = steps[len(steps) // 2 :]
    assert max(late) * price_s < 2 * LONG_S
    assert sum(late) > len(late) * LONG_S / price_s / 4, "and no smaller than they have to be"
    price_s = 0.0
    for _ in range(20):
        crowd[0].send(*publishes()[:100])
        house.run()
    assert house.turn_work.most == TURN_WORK
    assert house.turn_work.of_one == BUDGET_WORK


def test_a_turn_has_an_end_whoever_asks(house: House) -> None:
    crowd = [Person(house, f"c{number}") for number in range(8)]
    reader = Person(house, "reader")
    reader.send(encode_subscribe(1, [TopicRequest("#")]))
    house.run()
    reader.heard()
    for one in crowd:
        one.send(*publishes()[:4000])
    before = 0
    while house.pretended.once():
        records = house.broker.registry.totals.published_records
        assert records - before <= TURN_WORK + 2 * BUDGET_WORK
        before = records
    assert before == 8 * 4000
    assert len(reader.payloads()) == 8 * 4000


def test_who_finds_a_turn_used_up_does_not_wait_for_all_who_are_busy(house: House) -> None:
    busy = [Person(house, f"busy {number}") for number in range(40)]
    late = [Person(house, f"late {number}") for number in range(4)]  # they use up a turn
    one = Person(house, "one")
    for some in busy:
        some.send(*publishes())
    for _ in range(20):
        house.pretended.once()
    for some in late:
        some.send(*publishes())
    one.send(encode_pingreq())
    turns = 0
    while not one.heard():
        assert house.pretended.once()
        turns += 1
    assert turns <= 3
    house.run()
    assert house.broker.registry.totals.published_records == 44 * MANY, "and nobody is forgotten"


def test_answers_and_records_keep_their_order(house: House) -> None:
    client = Person(house, "client")
    reader = Person(house, "reader")
    reader.send(encode_subscribe(1, [TopicRequest("t/#")]))
    house.run()
    reader.heard()
    packets = []
    for number in range(3000):
        packets.append(encode_publish(f"t/{number % 7}", b"%d" % number, qos=number % 2, packet_id=number % 2 + number))
        if number % 500 == 0:
            packets.append(encode_subscribe(60_000 + number // 500, [TopicRequest(f"f/{n}") for n in range(300)]))
            packets.append(encode_unsubscribe(61_000 + number // 500, [f"f/{n}" for n in range(300)]))
            packets.append(b"\xc0\0")
    client.send(*packets)
    house.run()
    assert reader.payloads() == [b"%d" % number for number in range(3000)]
    said = client.heard()
    acks = [item.packet_id for item in said if type(item).__name__ == "PubAck"]
    assert acks == [number + 1 for number in range(1, 3000, 2)]
    others = [item for item in said if type(item).__name__ != "PubAck"]
    assert [type(item) for item in others] == [SubAck, UnsubAck, PingResp] * 6
    client.send(*publishes(), encode_disconnect())
    house.run()
    assert len(reader.payloads()) == MANY
    assert not client.connection.open


def test_a_subscribe_is_answered_once_all_of_it_is_done(house: House) -> None:
    client = Person(house, "client")
    client.send(*subscribes())
    seen = []
    while house.pretended.once():
        session = client.connection.peer_side.session
        assert session is not None
        seen.append(len(session.subscriptions))
        answered = client.heard()
        assert not answered or seen[-1] == 1000
    begun = [after - before for before, after in zip([0, *seen], seen, strict=False)]
    assert max(begun) <= BUDGET_WORK // SUBSCRIBE_WORK + 1


def test_a_fault_behind_much_work_ends_the_connection_after_it(house: House) -> None:
    client, reader = Person(house, "client"), Person(house, "reader")
    reader.send(encode_subscribe(1, [TopicRequest("#")]))
    house.run()
    reader.heard()
    client.send(*publishes(), b"\xff\0", *publishes())
    house.run()
    assert len(reader.payloads()) == MANY
    assert not client.connection.open


def test_who_is_to_slow_down_is_not_served_meanwhile(house: House) -> None:
    client = Person(house, "client")
    client.send(*publishes())
    house.pretended.once()
    client.connection.pause_reading("publisher")
    house.run()
    held = house.broker.registry.totals.published_records
    assert held < MANY
    client.connection.resume_reading("publisher")
    house.run()
    assert house.broker.registry.totals.published_records == MANY


def test_amqp_too(house: House) -> None:
    greedy, modest = Client(house, "greedy"), Person(house, "modest")
    greedy.say(Confirm.Select())
    greedy.connection.read_bytes = READ
    frames = [frame for number in range(MANY) for frame in message(1, f"k{number}", b"x", "amq.topic")]
    greedy.sock.incoming.append(b"".join(frames) + method(1, Basic.Qos(0, 1)))
    modest.send(b"\xc0\0")
    loop: Loop = house.pretended
    for _ in range(4):
        loop.once()
    assert modest.heard() == [PingResp()]
    assert house.broker.registry.totals.published_records < MANY
    house.run()
    assert house.broker.registry.totals.published_records == MANY
    greedy.run()
    assert greedy.heard[-1][1].name == "Basic.QosOk"


def test_clients_before_their_login_have_a_small_budget_together(house: House) -> None:
    """Anybody can open a connection."""
    modest, socks = Person(house, "modest"), [Socket() for _ in range(200)]
    opening = encode_connect(Connect(5, "", True, 0, user=(("name", "x" * 500),) * 100))
    for sock in socks:
        house.accept(sock, "mqtt", MqttPeer)
        sock.incoming.append(opening)
    modest.send(b"\xc0\0")
    come, served = 0, 0
    while house.pretended.once():
        before, come = come, sum(1 for sock in socks if sock.taken)
        assert come - before <= GREETING_WORK // LOGIN_WORK
        served += bool(modest.heard())
        assert served or before == 0, "a client that is there is served at once"
    assert come == len(socks)


def test_a_client_gets_in_while_others_come_without_an_end(house: House) -> None:
    """Reads of new connections come before those that wait, in each turn."""
    opening = encode_connect(Connect(5, "", True, 0, user=(("name", "x" * 500),) * 100))

    def come() -> Socket:
        sock = Socket()
        house.accept(sock, "mqtt", MqttPeer)
        sock.incoming.append(opening)
        return sock

    for _ in range(20):
        come()
    newcomer, steps = come(), 0
    while not newcomer.taken:
        for _ in range(3):
            come()
        house.pretended.once()
        steps += 1
        assert steps < 100
