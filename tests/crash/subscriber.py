"""MQTT clients: publishers of both qualities, and subscribers whose sessions outlive them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.crash.actor import Actor, World, body_of
from tests.crash.event import Confirmed, Sent, Settled
from tests.interop.raw import Message, PubAck, PubComp, PubRec, PubRel, Raw

from headway.wire.mqtt.packets import DisconnectPacket, TopicRequest

EXPIRY_S = 3600
RECEIPTS = "receipts/mqtt"
SETTLED_PER_RECEIPT = 20
Boxes = Callable[[str], tuple[str, ...]]
"""From a topic to the boxes that have its records."""


class MqttActor(Actor):
    """Publishes with QoS 1 or 2."""

    def __init__(self, world: World, name: str, *topics: str, boxes: Boxes, qos: int = 1, window: int = 40) -> None:
        super().__init__(world, name)
        self.topics = topics
        self.boxes = boxes
        self.qos = qos
        self.window = window
        self.unconfirmed: dict[int, str] = {}
        self.to_release: list[int] = []
        self.releasing: set[int] = set()

    def connect(self) -> Raw:
        return Raw(self.world.life.mqtt, self.name)

    def begin(self) -> None:
        self.unconfirmed.clear()
        self.to_release.clear()
        self.releasing.clear()

    def publish(self, topic: str, qos: int) -> None:
        record = self.new_record()
        self.world.tell(Sent(record, self.boxes(topic), self.conn))
        while self.raw.next_id + 1 in self.releasing or self.raw.next_id + 1 in self.unconfirmed:
            self.raw.next_id += 1
        self.unconfirmed[self.raw.publish(topic, body_of(record), qos)] = record

    def work(self) -> None:
        self.release()
        room, rng = self.window - len(self.unconfirmed) - len(self.releasing), self.world.rng
        topics = [rng.choice(self.topics)] if rng.random() < 0.5 else self.topics  # those of one topic may be a run
        for _ in range(self.burst(room)):
            self.publish(rng.choice(topics), self.qos)

    def release(self) -> None:
        for number in self.to_release:
            self.raw.rel(number)
        self.to_release.clear()

    def handle(self, item: Any) -> None:
        match item:
            case PubAck(packet_id=number, code=code) | PubRec(packet_id=number, code=code):
                self.world.tell(Confirmed(self.unconfirmed.pop(number)))
                if code:
                    self.wrong(f"{item}")
                if isinstance(item, PubRec):
                    self.to_release.append(number)
                    self.releasing.add(number)
            case PubComp(packet_id=number):
                self.releasing.discard(number)
            case Message():
                self.message(item)
            case PubRel(packet_id=number):
                self.released(number)
            case DisconnectPacket():
                self.cut(f"{item}")

    def message(self, message: Message) -> None:
        """A record was delivered."""

    def released(self, number: int) -> None:
        """The broker knows that it was."""


class Resuming(MqttActor):
    """Publishes with QoS 2 and few packet ids, so each comes again soon; and keeps what MQTT wants it to keep, so that
    every handshake goes on in the next life, or on the next connection."""

    def __init__(self, world: World, name: str, *topics: str, boxes: Boxes, ids: int = 4) -> None:
        super().__init__(world, name, *topics, boxes=boxes, qos=2, window=ids)
        self.ids = range(1, ids + 1)
        self.topic: dict[str, str] = {}
        """Of each record that is not confirmed."""
        self.met = False
        """The broker said that it has a session."""

    def connect(self) -> Raw:
        return Raw(self.world.life.mqtt, self.name, clean_start=False, session_expiry_s=EXPIRY_S)

    def begin(self) -> None:
        if self.met and not self.raw.connack.session_present:
            self.wrong("its session is not there any more")
        self.met = True
        self.to_release.clear()
        for number in self.releasing:
            self.raw.rel(number)
        for number, record in self.unconfirmed.items():
            self._send(number, record, dup=True)

    def publish(self, topic: str, qos: int) -> None:
        record, number = self.new_record(), next(one for one in self.ids if not self._busy(one))
        self.world.tell(Sent(record, self.boxes(topic), self.conn))
        self.unconfirmed[number], self.topic[record] = record, topic
        self._send(number, record)

    def _busy(self, number: int) -> bool:
        return number in self.unconfirmed or number in self.releasing

    def _send(self, number: int, record: str, *, dup: bool = False) -> None:
        self.raw.next_id = number - 1
        self.raw.publish(self.topic[record], body_of(record), self.qos, dup=dup)

    def work(self) -> None:
        super().work()
        if self.world.chance(0.005):
            self.leave(self.world.rng.randint(0, 20))


class Subscriber(MqttActor):
    """Keeps its session, and what MQTT wants a client to keep with it: the ids of QoS 2 that were not released, so that
    it takes none of them for a new record. ``box_of``: from a topic to the box it came from."""

    def __init__(
        self, world: World, name: str, *filters: str, boxes: Boxes, box_of: Callable[[str], str], qos: int = 1,
        credit: int = 50, careful: bool = False, alone: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(world, name, boxes=boxes)
        self.filters = filters
        self.box_of = box_of
        self.wanted_qos = qos
        self.credit = credit
        self.careful = careful
        self.alone = alone
        self.waiting: list[tuple[Message, str]] = []
        self.held: dict[int, tuple[str, str]] = {}
        """Ids of QoS 2 that it has and that were not released: box and record."""
        self.had: set[str] = set()
        """What was delivered exactly once."""
        self.complete: list[int] = []
        self.settled = 0
        self.subscribed = False
        """The broker cannot have forgotten."""

    def connect(self) -> Raw:
        raw = Raw(self.world.life.mqtt, self.name, clean_start=False, session_expiry_s=EXPIRY_S,
                  receive_max=self.credit)  # fmt: skip
        if self.subscribed and not raw.connack.session_present:
            self.wrong("its session is not there any more")
        if not raw.connack.session_present:
            self.held.clear()
        return raw

    def begin(self) -> None:
        super().begin()
        self.waiting.clear()
        self.complete.clear()
        if not self.subscribed:
            self.raw.subscribed(*[TopicRequest(filter, self.wanted_qos) for filter in self.filters])
            self.publish(RECEIPTS, 1)
            self.handle(self.raw.expect(PubAck))
            self.subscribed = True

    def message(self, message: Message) -> None:
        if message.qos == 2 and message.packet_id in self.held:  # it has it: only the broker does not know
            self.waiting.append((message, ""))
            return
        box = self.box_of(message.topic)
        record = self.delivered(box, message.payload, again=message.dup, alone=self.alone)
        if message.qos == 2:
            self.held[message.packet_id] = box, record
            if record in self.had:
                self.wrong(f"{record} of {box} is delivered twice, and was to be exactly once")
            self.had.add(record)
        self.waiting.append((message, record))

    def released(self, number: int) -> None:
        self.complete.append(number)

    def work(self) -> None:
        rng = self.world.rng
        at_once = self.careful or self.world.calm
        for _ in range(len(self.waiting) if at_once else rng.randint(0, min(8, len(self.waiting)))):
            message, record = self.waiting.pop(0)
            if message.qos == 2:
                self.raw.rec(message)
            else:
                self.world.tell(Settled(self.box_of(message.topic), record, self.conn))
                self.raw.ack(message)
                self.settled += 1
        for number in self.complete:
            if number in self.held:
                self.world.tell(Settled(*self.held.pop(number), self.conn))
                self.settled += 1
            self.raw.comp(number)
        self.complete.clear()
        if self.settled >= SETTLED_PER_RECEIPT:
            self.settled = 0
            self.publish(RECEIPTS, 1)
        if not at_once and self.world.chance(0.01):
            self.leave(rng.randint(0, 60))

    def farewell(self) -> None:
        """Where there is little room its goodbye may stand behind a receipt that waits for room, until others, whose
        turn comes later, have made some; so nobody waits for it."""
        if not self.world.chance(0.5):
            return
        if self.world.setting.narrow:
            self.raw.say_goodbye()
        else:
            self.raw.goodbye()
