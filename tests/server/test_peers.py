"""What is the same in every protocol's side of a connection, with a protocol that has next to nothing of its own."""

from __future__ import annotations

import pytest
from tests.server.amqp_stage import House
from tests.server.pretended import Socket

from headway.core.base import ProtocolError, Reason
from headway.core.consumer import ConnectRequest
from headway.core.message import Run
from headway.server.peers import BasePeer

Item = Run | bytes


class Letters:
    """Each byte is an item; a point is a record, and a question mark is no byte of the protocol."""

    waits, buffered_bytes, overhead_bytes, missing_bytes, unknown_bytes, oldest = False, 0, 0, 0, 0, 0

    def __init__(self) -> None:
        self.error: ProtocolError | None = None
        self.packets = self.extra_work = self.remembered_bytes = 0

    def feed(self, data: bytes, items_max: int = 0) -> list[Item]:
        known, wrong, _ = data.partition(b"?")
        if wrong:
            self.error = ProtocolError("a question", reason=Reason.MALFORMED)
        return [Run("t", b"x", [1], [0]) if byte == b"." else byte for byte in map(bytes, zip(known, strict=True))]


class LettersPeer(BasePeer[Item]):
    def __init__(self, engine: House, connection: object, listener: object) -> None:
        super().__init__(engine, connection, listener, Letters())  # type: ignore[arg-type]

    def one(self, item: Item) -> None:
        if item == b"h":
            request = ConnectRequest("letters", self.connection.listener)
            self.session = self.engine.broker.connect(request, self.connection, self.engine.now())
        elif item == b"w":
            self.check_password("somebody", b"right", lambda refusal: self.write(b"no" if refusal else b"yes"))
        self.write(bytes(item) if isinstance(item, bytes) else None)

    def last_word(self, reason: Reason, text: str) -> bytes:
        return f" bye: {text}".encode()

    def over(self) -> None: ...


@pytest.fixture
def house() -> House:
    return House()


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        (b"hab.c", b"habc"),
        (b"hab?c", b"hab bye: a question"),
        (b".ab", b" bye: the client has not logged in"),
        (b"hwab", b"hwyesab"),
    ],
)
def test_items_are_done_in_order_up_to_the_first_fault(house: House, said: bytes, heard: bytes) -> None:
    sock = Socket()
    connection = house.accept(sock, peer=LettersPeer)
    sock.incoming.append(said)
    house.run()
    assert bytes(sock.taken) == heard
    assert connection.open == (b"bye" not in heard)
