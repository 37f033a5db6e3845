"""AMQP 1.0, by the engine of Qpid Proton, which does no I/O. Its frames are small, so many deliveries have several."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from cproton import pn_data_clear, pn_disposition_data
from proton import (
    Collector,
    Condition,
    Connection,
    Delivery,
    Described,
    Event,
    Link,
    Message,
    Terminus,
    Transport,
    symbol,
    ulong,
)
from tests.crash.life import Life
from tests.crash.voices.voice import Begun, Came, Ended, Fault, Kept, Place, Voice
from tests.interop.waiting import PATIENCE_S

FRAME_BYTES = 1024


class Amqp1(Voice):
    protocol = "amqp1"

    def __init__(self, life: Life, name: str) -> None:
        super().__init__(life, name)
        self._conn, self._transport, self._collector = Connection(), Transport(), Collector()
        self._conn.container, self._conn.hostname = name, "127.0.0.1"
        self._conn.collect(self._collector)
        self._transport.max_frame_size = FRAME_BYTES
        self._transport.bind(self._conn)
        self._conn.open()
        self._session = self._conn.session()
        self._session.open()
        self._sender = self._session.sender("relay")
        """Anonymous, for only what one link has sent is certain to come in order."""
        self._sender.open()
        self._coordinator: Any = None
        self._receiver: Any = None
        self._txn: Any = None
        self._tags = 0
        self._unsettled: dict[int, Any] = {}
        self._upto = False
        self._to_settle: list[Any] = []
        """Deliveries that a transaction settles."""
        self._settled: list[Any] = []
        """Those of a transaction whose commit is not answered: the broker settles them first."""
        self._flush()

    @staticmethod
    def port(life: Life) -> int:
        return life.amqp

    # -- bytes --------------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        while (pending := self._transport.pending()) > 0:
            self.sock.sendall(self._transport.peek(pending))
            self._transport.pop(pending)

    def take(self, data: bytes) -> None:
        while data:
            room = self._transport.capacity()
            if room < 0:
                self.inbox.append(Fault(f"{self._transport.condition}"))
                return
            self._transport.push(data[:room])
            data = data[room:]
            self._events()
        with suppress(OSError):  # it may be dead, and what it said is read all the same
            self._flush()

    def _events(self) -> None:
        while (event := self._collector.peek()) is not None:
            if event.type is Event.DELIVERY:
                self._delivery(event.delivery)
            elif event.type in (Event.LINK_REMOTE_CLOSE, Event.SESSION_REMOTE_CLOSE, Event.CONNECTION_REMOTE_CLOSE):
                of: Any = event.link or event.session or event.connection
                said: Condition | None = getattr(of, "remote_condition", None)
                self.inbox.append(Fault(f"{event.type} {said}"))
            self._collector.pop()

    def _delivery(self, delivery: Any) -> None:
        if delivery.link.is_receiver:
            self._came(delivery)
        elif delivery.updated and delivery.remote_state:
            self._told(delivery)

    def _came(self, delivery: Any) -> None:
        if delivery.partial or not delivery.readable:
            return
        raw = delivery.link.recv(delivery.pending)
        delivery.link.advance()
        message = Message()
        message.decode(raw)
        body = message.body
        again = message.delivery_count > 0 or not message.first_acquirer
        self._tags += 1
        self._unsettled[self._tags] = delivery
        self.inbox.append(Came(self._tags, body.tobytes() if isinstance(body, memoryview) else bytes(body), again))

    def _told(self, delivery: Any) -> None:
        state, what, said = delivery.remote_state, str(delivery.tag), delivery.remote.condition
        if what == "declare":
            self._txn = bytes(delivery.remote.data[0])
        delivery.settle()
        if what == "declare":
            self.inbox.append(Begun())
        elif what == "discharge":
            for one in self._settled:
                one.settle()
                self._receiver.flow(1)
            self._settled.clear()
            self.inbox.append(Ended() if state == Delivery.ACCEPTED else Fault(f"discharge: {state} {said}"))
        elif what.startswith("within"):
            if state != 0x34:
                self.inbox.append(Fault(f"in a transaction: {state} {said}"))
        else:
            self.inbox.append(Kept(int(what)) if state == Delivery.ACCEPTED else Fault(f"{what}: {state} {said}"))

    # -- what an actor wants ------------------------------------------------------------------------------------------

    def consume(self, place: Place, credit: int, *, upto: bool, durable: str = "") -> None:
        self._upto = upto
        receiver = self._receiver = self._session.receiver(durable or "c")
        source = receiver.source
        source.address = f"{'topic' if place.is_topic else 'queue'}://{place.name}"
        if durable:
            source.durability, source.expiry_policy = Terminus.DELIVERIES, Terminus.EXPIRE_NEVER
        receiver.open()
        receiver.flow(credit)
        self._flush()
        deadline = time.monotonic() + PATIENCE_S
        while durable and not receiver.state & Link.REMOTE_ACTIVE:
            assert self.read(deadline - time.monotonic()) or time.monotonic() < deadline, f"{self.name}: no attach"
            assert not self.ended, f"{self.name}: {self.inbox}"

    def stop_consuming(self) -> None:
        self._receiver.close()
        self._flush()

    def send(self, place: Place, body: bytes, number: int) -> None:
        sender, to = self._sender, f"{'topic' if place.is_topic else 'queue'}://{place.name}"
        delivery = sender.delivery(f"within {number}" if self._txn is not None else str(number))
        if self._txn is not None:
            delivery.local.data = [self._txn]
            delivery.update(0x34)
        sender.stream(Message(body=body, address=to, durable=True).encode())
        sender.advance()
        self._flush()

    @property
    def has_sent_all(self) -> bool:
        return bool(self._sender.queued == 0)

    def settle(self, number: int) -> None:
        numbers = [one for one in self._unsettled if one <= number] if self._upto else [number]
        for one in numbers:
            delivery = self._unsettled[one] if self._txn is not None else self._unsettled.pop(one)
            if self._txn is None:
                delivery.update(Delivery.ACCEPTED)
                delivery.settle()
                self._receiver.flow(1)
            else:
                # Proton would write this behind what an earlier transaction said of the delivery: a list too many.
                pn_data_clear(pn_disposition_data(delivery.local._impl))
                delivery.local.data = [self._txn, Described(ulong(0x24), [])]
                delivery.update(0x34)
                self._to_settle.append(one)
        self._flush()

    def give_back(self, number: int) -> None:
        delivery = self._unsettled.pop(number)
        delivery.local.failed = True
        delivery.update(Delivery.MODIFIED)
        delivery.settle()
        self._receiver.flow(1)
        self._flush()

    def begin(self) -> None:
        if self._coordinator is None:
            self._coordinator = self._session.sender("coordinator")
            self._coordinator.target.type = Terminus.COORDINATOR
            self._coordinator.target.capabilities.put_object(symbol("amqp:local-transactions"))
            self._coordinator.open()
        self._ask("declare", Described(symbol("amqp:declare:list"), [None]))

    def end(self, *, commit: bool) -> None:
        self._ask("discharge", Described(symbol("amqp:discharge:list"), [self._txn, not commit]))
        self._txn = None
        if commit:
            self._settled += [self._unsettled.pop(one) for one in self._to_settle]
        self._to_settle.clear()
        self._flush()

    def _ask(self, what: str, said: Any) -> None:
        delivery = self._coordinator.delivery(what)
        assert delivery is not None
        self._coordinator.stream(Message(body=said).encode())
        self._coordinator.advance()
        self._flush()
