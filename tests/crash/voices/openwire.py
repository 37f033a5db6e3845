"""OpenWire, as a client says it that keeps no objects and says nothing tightly."""

from __future__ import annotations

from struct import pack, unpack_from

from tests.crash.life import Life
from tests.crash.voices.voice import Begun, Came, Ended, Fault, Kept, Place, Voice
from tests.wire.openwire_frames import NO, YES, consumer_id, frame, message_id, producer_id, text, wire_format

from headway.wire.openwire.codes import AckType, TransactionStep, Type
from headway.wire.openwire.marshalling import FrameReader
from headway.wire.openwire.messages import read_message

BODY_BYTES_MAX = 1 << 20
_OWN = 1_000_000
"""Numbers of commands from here on are no numbers of messages."""
_SUBSCRIBE, _END, _REST = range(_OWN, _OWN + 3)


class Subscribed:
    """The broker has begun a consumer."""


class OpenWire(Voice):
    protocol = "openwire"

    def __init__(self, life: Life, name: str) -> None:
        super().__init__(life, name)
        self._tail = b""
        self._sent = self._transactions = 0
        self._within = False
        self._oldest: dict[int, None] = {}
        """Deliveries that are not settled, in their order."""
        self._upto = False
        self._id = YES + b"\x78" + text(f"ID:{name}")
        info = frame(3, self._id, text(name), NO, NO, NO, NO, NO, NO, YES, YES, number=_REST, wants_response=False)
        self.sock.sendall(wire_format() + info)

    @staticmethod
    def port(life: Life) -> int:
        return life.openwire

    # -- in -----------------------------------------------------------------------------------------------------------

    def take(self, data: bytes) -> None:
        data = self._tail + data
        at = 0
        while len(data) - at >= 4:
            end = at + 4 + unpack_from(">i", data, at)[0]
            if end > len(data):
                break
            self._take(data, at, end, data[at + 4])
            at = end
        self._tail = data[at:]

    def _take(self, data: bytes, at: int, end: int, kind: int) -> None:
        match kind:
            case Type.RESPONSE:
                self._response(unpack_from(">i", data, at + 10)[0])
            case Type.MESSAGE_DISPATCH:
                r = FrameReader(data, at + 10, end, 12, None)
                r.nested("consumer")
                r.nested("destination")
                r.u8("message")
                kind = r.u8("message")
                r.take(5, "message")
                message = read_message(r, kind, BODY_BYTES_MAX)
                again = unpack_from(">i", data, end - 4)[0] > 0
                assert message.id is not None
                self._oldest[message.id.delivery] = None
                self.inbox.append(Came(message.id.delivery, message.payload, again))
            case Type.EXCEPTION_RESPONSE | Type.CONNECTION_ERROR | Type.CONSUMER_CONTROL:
                self.inbox.append(Fault(repr(data[at + 5 : end])))

    def _response(self, number: int) -> None:
        if number < _OWN:
            self.inbox.append(Kept(number))
        elif number == _SUBSCRIBE:
            self.inbox.append(Subscribed())
        elif number == _END:
            self.inbox.append(Ended())

    # -- out ----------------------------------------------------------------------------------------------------------

    def _of(self, place: Place) -> bytes:
        return YES + (b"\x65" if place.is_topic else b"\x64") + text(place.name.replace("#", ">"))

    def _transaction(self) -> bytes:
        return YES + b"\x6f" + pack(">q", self._transactions) + self._id if self._within else NO

    def consume(self, place: Place, credit: int, *, upto: bool, durable: str = "") -> None:
        self._upto = upto
        self.sock.sendall(frame(
            5, consumer_id(f"ID:{self.name}"), NO, self._of(place), pack(">ii", credit, 0), YES, NO, NO,
            text(durable) if durable else NO, NO, NO, NO, b"\0", NO, NO, NO, NO, NO, NO, number=_SUBSCRIBE,
        ))  # fmt: skip
        if durable:
            self.until(Subscribed)

    def stop_consuming(self) -> None:
        self.sock.sendall(frame(12, consumer_id(f"ID:{self.name}"), pack(">q", 0), number=_REST, wants_response=False))

    def send(self, place: Place, body: bytes, number: int) -> None:
        self._sent += 1
        producer = producer_id(f"ID:{self.name}")
        self.sock.sendall(frame(
            24, producer, self._of(place), self._transaction(), NO, message_id(self._sent, 0, producer), NO, NO,
            pack(">i", 0), NO, YES, pack(">q", 0), b"\4", NO, pack(">q", 0), NO, YES, pack(">i", len(body)), body, NO,
            NO, NO, NO, pack(">i", 0), NO, pack(">q", 0), NO, NO, NO, NO, pack(">qq", 0, 0), NO, number=number,
            wants_response=not self._within,
        ))  # fmt: skip

    def _acknowledge(self, kind: AckType, first: int, last: int, count: int) -> None:
        self.sock.sendall(frame(
            22, NO, self._transaction(), consumer_id(f"ID:{self.name}"), bytes((kind,)), message_id(1, first),
            message_id(1, last), pack(">i", count), NO, number=_REST, wants_response=False,
        ))  # fmt: skip

    def settle(self, number: int) -> None:
        if not self._upto:
            self._acknowledge(AckType.INDIVIDUAL, number, number, 1)
            self._oldest.pop(number, None)
            return
        some = [one for one in self._oldest if one <= number]
        self._acknowledge(AckType.STANDARD, some[0], number, len(some))
        if not self._within:
            for one in some:
                del self._oldest[one]

    def give_back(self, number: int) -> None:
        raise AssertionError("a client of OpenWire gives nothing back but by leaving")

    def begin(self) -> None:
        self._transactions += 1
        self._within = True
        self._step(TransactionStep.BEGIN, _REST)
        self.inbox.append(Begun())

    def end(self, *, commit: bool) -> None:
        self._step(TransactionStep.COMMIT if commit else TransactionStep.ROLLBACK, _END)
        self._within = False

    def _step(self, step: TransactionStep, number: int) -> None:
        self.sock.sendall(frame(7, self._id, self._transaction(), bytes((step,)), number=number,
                                wants_response=number == _END))  # fmt: skip
