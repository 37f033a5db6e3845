"""Who is in the story, what is declared for them, and what is to be found of it after a kill."""

from __future__ import annotations

from typing import Any

from pamqp.commands import Basic, Channel, Confirm, Exchange, Queue
from tests.crash.actor import Actor, World, body_of
from tests.crash.consumer import Consumer, Retrier, Returner, Worker
from tests.crash.event import Confirmed, Counted, Sent, Wrong
from tests.crash.publisher import Binder, Publisher, Purger
from tests.crash.speaker import Listener, Speaker, Toiler
from tests.crash.subscriber import MqttActor, Resuming, Subscriber
from tests.crash.voices.amqp1 import Amqp1
from tests.crash.voices.openwire import OpenWire
from tests.crash.voices.stomp import Stomp
from tests.crash.voices.voice import Place, Voice
from tests.crash.writer import Writer
from tests.interop.amqp_raw import Raw

VOICES: tuple[type[Voice], ...] = (Stomp, Amqp1, OpenWire)
"""Each publishes to the next one's queues, too."""
QUEUES: dict[str, dict[str, Any]] = {
    "receipts": {},
    "tasks": {"x-dead-letter-exchange": "amq.topic", "x-dead-letter-routing-key": "graves.tasks"},
    "graves": {},
    "mortal": {
        "x-message-ttl": 100, "x-dead-letter-exchange": "amq.topic", "x-dead-letter-routing-key": "graves.expired",
    },
    "expired": {},
    "limited": {
        "x-delivery-limit": 2, "x-dead-letter-exchange": "amq.topic", "x-dead-letter-routing-key": "graves.poison",
    },
    "poison": {},
    "retried": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "waiting"},
    "waiting": {"x-message-ttl": 100, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "retried"},
    "written": {},
    "single": {},
    "pile": {},
    "work": {},
    "done": {},
    "topics": {},
    "hoard": {},
    "rota-0": {},
    "rota-1": {},
    "rota-2": {},
    **{f"{what}-{voice.protocol}": {} for what in ("ring", "job", "made") for voice in VOICES},
}
"""The durable ones, and their arguments."""
EMPTIED = ("heap", "fickle")
PASSED = ("mortal", "limited", "waiting")
"""Queues whose records are to die, and go on to a box as dead letters."""
EXCHANGES = {"orders": "direct", "fan": "fanout", "rota": "topic", "inner": "fanout"}
BINDINGS = (
    ("orders", "t", "tasks"), ("orders", "s", "single"), ("inner", "", "single"),
    ("amq.topic", "graves.tasks", "graves"), ("amq.topic", "graves.expired", "expired"),
    ("amq.topic", "graves.poison", "poison"), ("amq.topic", "w.#", "written"),
    ("inner", "", "pile"), ("rota", "k", "rota-0"), ("amq.topic", "m.#", "topics"),
    ("amq.topic", "receipts.#", "receipts"),
)  # fmt: skip
DURABLES = {voice: f"durable.d-{voice.protocol}.sub" for voice in VOICES}
"""Queues of the durable subscriptions to ``m/c/#``."""
UNORDERED = frozenset(("retried", "poison"))
"""Boxes to which records come in the order in which they died, more than once in the first."""
UNCOUNTED = {"graves", "expired", *UNORDERED, *PASSED, *EMPTIED}
"""Boxes of which the checker cannot tell how much is in them."""
SHARED = "share:crew"


def boxes(topic: str) -> tuple[str, ...]:
    """Where the records of an MQTT topic go."""
    first, *rest = topic.split("/")
    if first == "receipts":
        return ("receipts",)
    found = ["topics"]
    match rest:
        case ["a", _]:
            found += ["sub-one:m/a/+", "sub-two:m/#"]
        case ["b", _]:
            found += ["sub-two:m/#", SHARED]
        case ["c", _]:
            found += ["sub-exact:m/c/#"]
            found += ["sub-two:m/#", *DURABLES.values()]
    return tuple(found)


def declare(world: World) -> None:
    """Once. All of it is certain when this returns, for something that was published afterwards was confirmed."""
    with Raw(world.life.amqp) as raw:
        for name, kind in EXCHANGES.items():
            raw.call(Exchange.Declare(exchange=name, exchange_type=kind, durable=True), Exchange.DeclareOk)
        for name, arguments in QUEUES.items():
            raw.declare(name, durable=True, exclusive=False, arguments=arguments)
        for exchange, key, queue in BINDINGS:
            raw.call(Queue.Bind(queue=queue, exchange=exchange, routing_key=key), Queue.BindOk)
        raw.call(Exchange.Bind(destination="inner", source="fan", routing_key=""), Exchange.BindOk)
        raw.declare("fleeting", durable=False, exclusive=False)
        raw.call(Exchange.Declare(exchange="passing", durable=False), Exchange.DeclareOk)
        raw.call(Confirm.Select(), Confirm.SelectOk)
        world.conns += 1
        world.tell(Sent("declare:1", ("receipts",), world.conns))
        raw.publish("", "receipts", body_of("declare:1"), delivery_mode=2)
        raw.expect(Basic.Ack)
        world.tell(Confirmed("declare:1"))


def look(world: World) -> None:
    """After a start, before anybody else is there."""
    with Raw(world.life.amqp) as raw:
        for name in (*QUEUES, *DURABLES.values()):
            raw.do(Queue.Declare(queue=name, passive=True))
            answer: Any = raw.expect(object)
            if not isinstance(answer, Queue.DeclareOk):
                world.tell(Wrong(f"queue {name} is gone: {dict(answer)}"))
                raw.do(Channel.CloseOk())
                raw.open_channel()
            elif name not in UNCOUNTED:
                world.tell(Counted(name, answer.message_count))
        for name in EMPTIED:  # it may have been deleted, and not be back
            raw.declare(name, durable=True, exclusive=False)
        for number, (name, kind) in enumerate(EXCHANGES.items(), 10):
            raw.open_channel(number)
            raw.do(Exchange.Declare(exchange=name, exchange_type=kind, passive=True), number)
            answer = raw.expect(object, number)
            if not isinstance(answer, Exchange.DeclareOk):
                world.tell(Wrong(f"exchange {name} is gone: {dict(answer)}"))
        passing = (Queue.Declare(queue="fleeting", passive=True), Exchange.Declare(exchange="passing", passive=True))
        for number, command in enumerate(passing, 50):
            raw.open_channel(number)
            raw.do(command, number)
            if not isinstance(raw.expect(object, number), Channel.Close):
                world.tell(Wrong(f"{dict(command)} is still there, and is not durable"))


def publishers(world: World) -> list[Actor]:
    orders = ("orders", "t", ("tasks",)), ("orders", "s", ("single",))
    return [
        Publisher(world, "p-orders", *orders, transient=0.2),
        Publisher(world, "p-more", orders[0]),
        Publisher(world, "p-work", ("", "work", ("work",)), window=10),
        Publisher(world, "p-fan", ("fan", "", ("single", "pile")), ("", "pile", ("pile",)), transient=0.2),
        Publisher(world, "p-mortal", ("", "mortal", ("expired",)), window=10),
        Publisher(world, "p-limited", ("", "limited", ("poison",)), window=10),
        Publisher(world, "p-retried", ("", "retried", ("retried",)), window=10),
        Writer(world, "p-written", "w/x", "written"),
        Purger(world, "p-heap", "heap", deletes=False),
        Purger(world, "p-fickle", "fickle", deletes=True),
        Publisher(world, "fat-pile", ("", "pile", ("pile",)), window=10, transient=0.3),
        Publisher(world, "fat-hoard", ("", "hoard", ("hoard",)), window=10, transient=0.3),
        Binder(world, "p-rota", "rota", ("rota-0", "rota-1", "rota-2")),
        MqttActor(world, "m-one", "m/a/1", "m/a/2", "m/b/1", boxes=boxes, qos=1),
        MqttActor(world, "fat-topics", "m/a/4", boxes=boxes, window=5),
        Resuming(world, "m-four", "m/b/3", "m/c/2", "m/a/5", boxes=boxes),
        Resuming(world, "m-lone", "m/c/3", boxes=boxes, ids=1),
        MqttActor(world, "m-two", "m/b/2", "m/c/1", "m/a/3", boxes=boxes, qos=2),
    ]


def subscribers(world: World) -> list[Subscriber]:
    def one(name: str, filter: str, box: str, qos: int, *, alone: bool = True) -> Subscriber:
        return Subscriber(world, name, filter, boxes=boxes, box_of=lambda topic: box, qos=qos, alone=alone)

    return [
        one("sub-one", "m/a/+", "sub-one:m/a/+", 1),
        one("sub-two", "m/#", "sub-two:m/#", 1),
        one("sub-exact", "m/c/#", "sub-exact:m/c/#", 2),
        one("crew-1", "$share/crew/m/b/#", SHARED, 1, alone=False),
        one("crew-2", "$share/crew/m/b/#", SHARED, 1, alone=False),
    ]


def durables(world: World) -> list[Listener]:
    return [
        Listener(world, f"d-{voice.protocol}", voice, Place("m.c.#", is_topic=True), box, durable="sub", alone=True)
        for voice, box in DURABLES.items()
    ]


def speakers(world: World) -> list[Speaker]:
    found: list[Speaker] = []
    for voice, other in zip(VOICES, (*VOICES[1:], VOICES[0]), strict=True):
        own, others = voice.protocol, other.protocol
        ring, ahead, job = f"ring-{own}", f"ring-{others}", f"job-{others}"
        topics = [Place(f"m.{letter}.{own}", is_topic=True) for letter in "ac"]
        found += [
            Speaker(world, f"p-{own}", voice, (Place(ring), (ring,)), (Place(ahead), (ahead,)), (Place(job), (job,)),
                    *((one, boxes(one.name.replace(".", "/"))) for one in topics)),
            Speaker(world, f"fat-{own}", voice, (Place(ring), (ring,)), window=5),
            Listener(world, f"c-{own}-1", voice, Place(ring), ring, returns=voice is not OpenWire),
            Listener(world, f"c-{own}-2", voice, Place(ring), ring, credit=5),
            Toiler(world, f"w-{own}", voice, f"job-{own}", f"made-{own}"),
        ]  # fmt: skip
    return found


def consumers(world: World) -> list[Actor]:
    made = [f"made-{voice.protocol}" for voice in VOICES]
    return [
        Consumer(world, "c-tasks-1", "tasks", dead="graves"),
        Consumer(world, "c-tasks-2", "tasks", prefetch=5, dead="graves"),
        Consumer(world, "c-single", "single", alone=True),
        Retrier(world, "c-retried", "retried"),
        Returner(world, "c-limited", "limited"),
        Consumer(world, "c-topics-1", "topics", prefetch=100),
        Consumer(world, "c-topics-2", "topics", prefetch=10),
        Consumer(world, "c-rota", "rota-1", alone=True),
        Worker(world, "w-work", "work", "done"),
        Consumer(world, "c-hoard", "hoard", alone=True, careful=True, absence=(500, 3000)),
        *(
            Consumer(world, f"c-{queue}", queue, prefetch=500, alone=True, careful=True, absence=(30, 200))
            for queue in ("pile", "receipts", "graves", "expired", "poison", "done", "rota-0", "rota-2", *made)
        ),
    ]


def last_consumers(world: World) -> list[Actor]:
    """They fetch all there is."""
    boxes = [name for name in (*QUEUES, *EMPTIED, *DURABLES.values()) if name not in PASSED]
    return [
        Returner(world, "last-limited", "limited"),
        *(Consumer(world, f"last-{name}", name, prefetch=200, alone=True, careful=True, stays=True) for name in boxes),
    ]
