"""AMQP clients that publish, with confirms; among them one that empties its queue, and one that changes bindings."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from pamqp.commands import Basic, Channel, Confirm, Connection, Queue
from tests.crash.actor import Actor, World, body_of
from tests.crash.event import Confirmed, Emptied, Sent
from tests.interop.amqp_raw import Content, Raw

Where = tuple[str, str, tuple[str, ...]]
"""Exchange, routing key, and the boxes it leads to."""
PERSISTENT = 2


class AmqpActor(Actor):
    """Publishes on channel 1, with confirms."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.unconfirmed: OrderedDict[int, str] = OrderedDict()
        self.tag = 0

    def connect(self) -> Raw:
        return Raw(self.world.life.amqp)

    def begin(self) -> None:
        self.unconfirmed.clear()
        self.tag = 0
        self.raw.call(Confirm.Select(), Confirm.SelectOk)

    def publish(self, where: Where, *, durable: bool = True, put_off: bool = False) -> None:
        exchange, key, boxes = where
        record = self.new_record()
        self.world.tell(Sent(record, boxes, self.conn, durable, put_off))
        self.tag += 1
        if not put_off:
            self.unconfirmed[self.tag] = record
        self.raw.publish(exchange, key, body_of(record), delivery_mode=PERSISTENT if durable else 1)

    def handle(self, item: Any) -> None:
        channel, said = item
        match said:
            case Basic.Ack(delivery_tag=tag, multiple=multiple):
                for known in [t for t in self.unconfirmed if t == tag or (multiple and t <= tag)]:
                    self.world.tell(Confirmed(self.unconfirmed.pop(known)))
            case Content(Basic.Deliver(), _, _):
                self.content(said)
            case Basic.Nack():
                self.wrong(f"{dict(said)}")
            case Channel.Close() | Connection.Close() | Basic.Cancel():
                self.cut(f"{said.name} {dict(said)}")
            case _:
                self.answer(channel, said)

    def content(self, content: Content) -> None:
        """A record was delivered."""

    def answer(self, channel: int, said: Any) -> None:
        """Anything else was said."""

    def farewell(self) -> None:
        if self.world.setting.rough:
            return
        self.raw.do(Connection.Close(200, "", 0, 0), 0)
        while not self.raw.ended:
            assert self.raw.read(10.0) or self.raw.ended, f"{self.name}: no end after connection.close"
        self.raw.inbox = [item for item in self.raw.inbox if not isinstance(item[1], Connection.CloseOk)]


class Publisher(AmqpActor):
    def __init__(
        self, world: World, name: str, *where: Where, window: int = 60, transient: float = 0.0
    ) -> None:
        super().__init__(world, name)
        self.where = where
        self.window = window
        self.transient = transient

    def work(self) -> None:
        room = self.window - len(self.unconfirmed)
        for _ in range(self.burst(room)):
            self.publish(self.world.rng.choice(self.where), durable=not self.world.chance(self.transient))


class Purger(Publisher):
    """What it publishes to its queue, it has purged now and then; or, ``deletes``, the queue deleted and made again."""

    def __init__(self, world: World, name: str, queue: str, *, deletes: bool) -> None:
        super().__init__(world, name, ("", queue, (queue,)), window=20)
        self.queue = queue
        self.deletes = deletes

    def begin(self) -> None:
        super().begin()
        self.raw.declare(self.queue, durable=True, exclusive=False)

    def work(self) -> None:
        if self.world.chance(0.2 if self.world.calm else 0.02):
            self.world.tell(Emptied(self.queue, self.conn))
            if self.deletes:
                self.raw.do(Queue.Delete(queue=self.queue))
                self.raw.do(Queue.Declare(queue=self.queue, durable=True))
            else:
                self.raw.do(Queue.Purge(queue=self.queue))
        super().work()


class Binder(AmqpActor):
    """The only one to publish to its exchange, so it knows which queues have its records: it binds and unbinds all but
    the first, which is bound already."""

    def __init__(self, world: World, name: str, exchange: str, queues: tuple[str, ...]) -> None:
        super().__init__(world, name)
        self.exchange = exchange
        self.queues = queues
        self.bound = {queue: queue == queues[0] for queue in queues}
        self.unsure: dict[str, int] = {}
        """Queues whose last change is not known to be kept, and the record behind it."""

    def begin(self) -> None:
        super().begin()
        for queue in self.unsure:
            self._change(queue, there=self.bound[queue])

    def _change(self, queue: str, *, there: bool) -> None:
        self.bound[queue] = there
        self.unsure[queue] = self.tag
        what = Queue.Bind if there else Queue.Unbind
        self.raw.do(what(queue=queue, exchange=self.exchange, routing_key="k"))

    def handle(self, item: Any) -> None:
        super().handle(item)
        sure = min(self.unconfirmed, default=self.tag + 1) - 1
        self.unsure = {queue: tag for queue, tag in self.unsure.items() if tag >= sure}

    def gone(self) -> None:
        super().gone()
        self.unsure = dict.fromkeys(self.unsure, 1 << 60)

    def work(self) -> None:
        if self.world.chance(0.3):
            queue = self.world.rng.choice(self.queues[1:])
            self._change(queue, there=not self.bound[queue])
        boxes = tuple(queue for queue in self.queues if self.bound[queue])
        if self.burst(20 - len(self.unconfirmed)):
            self.publish((self.exchange, "k", boxes))


