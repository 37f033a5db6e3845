"""Clients that keep to MQTT's rules for exactly once, across connections and lives of the broker.

A publisher has few packet ids, so each comes again soon. It keeps its half of the handshake as MQTT wants (4.4):
a session that is found again goes on where it was, with PUBLISH (DUP) before PUBREC and PUBREL after it; where there is
none it begins anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.wires.packets import encode_ack, encode_connect, encode_publish, encode_subscribe
from tests.interop.raw import Message, messages_of
from tests.server.pretended import Socket
from tests.sim.once.house import JournalHouse

from headway.wire.mqtt.decoder import MqttDecoder
from headway.wire.mqtt.packets import ConnAck, Connect, DisconnectPacket, PubComp, PubRec, PubRel, SubAck, TopicRequest

EXPIRY_S = 1_000_000
PUBREC, PUBREL, PUBCOMP = 5, 6, 7
TOPIC, GROUP = "t/x", "$share/g/t/x"


class Client:
    """``sock`` is None while it is away."""

    def __init__(self, name: str, version: int, tell: Callable[[str], None]) -> None:
        self.name = name
        self.version = version
        self.tell = tell
        self.sock: Socket | None = None
        self.greeted = False
        self.met = False
        """It was told that the broker has a session of it."""
        self.begins = False
        """It wants a new session, and does not know yet that it has one."""
        self._decoder = MqttDecoder(role="client", version=version)

    def come(self, house: JournalHouse, *, clean: bool = False) -> None:
        """Connect; a connection that there is still is left to be taken over."""
        self.lost()
        self.sock = Socket()
        self._decoder = MqttDecoder(role="client", version=self.version)
        house.welcome(self.sock)
        if clean:
            self.begins = True
            self.forget()
        expiry = 0 if self.version == 4 else EXPIRY_S
        self.say(encode_connect(Connect(self.version, self.name, self.begins, session_expiry_s=expiry)))
        self.tell(f"{self.name} comes{' clean' if self.begins else ''}")

    def say(self, data: bytes) -> None:
        assert self.sock is not None
        self.sock.incoming.append(data)

    def vanish(self) -> None:
        if self.sock is not None:
            self.sock.incoming.append(b"")
            self.lost()

    def lost(self) -> None:
        """The connection is over, whatever is unread in it."""
        self.sock, self.greeted = None, False

    def read(self, most: int = 1 << 30) -> None:
        """So many bytes of what has come."""
        if self.sock is None:
            return
        data = bytes(self.sock.taken[:most])
        del self.sock.taken[:most]
        for item in self._decoder.feed(data):
            for one in messages_of(item):
                self.tell(f"{self.name} hears {one}")
                self._hear(one)
        assert self._decoder.error is None, self._decoder.error
        if self.sock is not None and self.sock.shut and not self.sock.taken:
            self.lost()

    def _hear(self, said: Any) -> None:
        match said:
            case ConnAck(code=0, session_present=present):
                assert present or not self.met, f"{self.name}'s session is lost"
                self.greeted = self.met = True
                self.begins = False
                if not present:
                    self.forget()
                self.resume()
            case DisconnectPacket():
                self.lost()
            case _:
                self.hear(said)

    def forget(self) -> None:
        """There is no session any more."""
        self.met = False

    def resume(self) -> None:
        """The broker is there."""

    def hear(self, said: Any) -> None:
        raise AssertionError(f"{self.name} heard {said}")


class Publisher(Client):
    def __init__(self, name: str, version: int, tell: Callable[[str], None], ids: int) -> None:
        super().__init__(name, version, tell)
        self.ids = ids
        self.numbers = 0
        self.under_way: dict[int, str] = {}
        """Records that were not confirmed, by id."""
        self.releasing: dict[int, None] = {}
        self.confirmed: set[str] = set()
        self.completed = 0

    def publish(self) -> str | None:
        """A new record, if there is an id for it."""
        free = [number for number in range(1, self.ids + 1) if number not in {*self.under_way, *self.releasing}]
        if not free or not self.greeted:
            return None
        self.numbers += 1
        record = f"{self.name}:{self.numbers}"
        self.under_way[free[0]] = record
        self._publish(free[0], record, dup=False)
        return record

    def _publish(self, number: int, record: str, *, dup: bool) -> None:
        self.tell(f"{self.name} publishes {record} as {number}{' again' if dup else ''}")
        self.say(encode_publish(TOPIC, record.encode(), version=self.version, qos=2, packet_id=number, dup=dup))

    def forget(self) -> None:
        super().forget()
        self.under_way.clear()
        self.releasing.clear()

    def resume(self) -> None:
        for number in self.releasing:
            self.say(encode_ack(PUBREL, number))
        for number, record in self.under_way.items():
            self._publish(number, record, dup=True)

    def hear(self, said: Any) -> None:
        match said:
            case PubRec(packet_id=number):
                if number in self.under_way:
                    self.confirmed.add(self.under_way.pop(number))
                    self.releasing[number] = None
                self.say(encode_ack(PUBREL, number))
            case PubComp(packet_id=number):
                self.completed += self.releasing.pop(number, self) is None
            case _:
                super().hear(said)

    @property
    def quiet(self) -> bool:
        return not self.under_way and not self.releasing


class Subscriber(Client):
    def __init__(self, name: str, version: int, tell: Callable[[str], None], filter: str = TOPIC) -> None:
        super().__init__(name, version, tell)
        self.filter = filter
        self.subscribed = False
        self.held: dict[int, None] = {}
        """Ids of deliveries that it has and that were not released."""
        self.had: list[str] = []
        self.due: set[str] = set()
        """What was published since it knows that it is subscribed."""
        self.owed: list[tuple[int, int]] = []
        """Answers it has not given yet."""

    def forget(self) -> None:
        super().forget()
        assert not self.subscribed
        self.held.clear()

    def lost(self) -> None:
        super().lost()
        self.owed.clear()

    def resume(self) -> None:
        if not self.subscribed:
            self.say(encode_subscribe(1, [TopicRequest(self.filter, 2)], version=self.version))

    def hear(self, said: Any) -> None:
        match said:
            case SubAck():
                self.subscribed = True
            case Message(packet_id=number, qos=2):
                if number not in self.held:
                    self.held[number] = None
                    self.had.append(said.payload.decode())
                self.owed.append((PUBREC, number))
            case PubRel(packet_id=number):
                self.held.pop(number, None)
                self.owed.append((PUBCOMP, number))
            case _:
                super().hear(said)

    def answer(self, most: int = 1 << 30) -> None:
        owed, self.owed = self.owed[:most], self.owed[most:]
        for kind, number in owed:
            self.tell(f"{self.name} says {'PUBREC' if kind == PUBREC else 'PUBCOMP'} {number}")
            self.say(encode_ack(kind, number))

    @property
    def quiet(self) -> bool:
        return not self.owed and not self.held
