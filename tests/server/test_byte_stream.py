"""A connection on a stream that holds something back: it counts, it is sent first, and pending bytes are read."""

from __future__ import annotations

from collections.abc import Sequence

from bench.wires.packets import connect, encode_publish, encode_subscribe
from tests.server.amqp_stage import House, Socket

from headway.core.base import Reason
from headway.server.connections.connection import Connection
from headway.server.mqtt.peer import MqttPeer
from headway.server.transport import Buffer, Opening, PlainStream

CONFIG = '[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n'
RECORD_BYTES = 1_000


class Holding(PlainStream):
    """Takes a thousand bytes at a time, whatever the socket takes; ``head`` is there already behind the handshake."""

    def __init__(self, sock: Socket, *, ready: bool = True, head: bytes = b"") -> None:
        super().__init__(sock)  # type: ignore[arg-type]
        self.held = b""
        self.ready = ready  # type: ignore[misc]
        self.head = head
        self.pending = bool(head)  # type: ignore[misc]

    @property
    def unsent(self) -> int:  # type: ignore[override]
        return len(self.held)

    def open(self, opening: Opening) -> None:
        self.opening = opening

    def receive(self, size: int) -> bytes:
        if self.pending:
            self.pending = False  # type: ignore[misc]
            return self.head
        return super().receive(size)

    def send(self, views: Sequence[Buffer]) -> int:
        assert not self.held, "nothing is offered before the last has gone"
        self.held = b"".join(views)[:RECORD_BYTES]
        taken = len(self.held)
        self.flush()
        return taken

    def send_pieces(self, data: Buffer, piece_bytes: int) -> int:
        return 0 if self.held else self.send((data,))

    def flush(self) -> bool:
        before = len(self.held)
        try:
            self.held = self.held[self.sock.send(self.held) :]
        except BlockingIOError:
            return False
        return len(self.held) < before


def welcome(house: House, stream: PlainStream) -> Connection:
    pool = house.broker.registry.pool_of("mqtt")
    connection = Connection(house, stream, "1.2.3.4:5", "mqtt", pool, house.now())  # type: ignore[arg-type]
    house.connections.add(connection, connection.opened_s + 10)
    connection.start(MqttPeer(house, connection, house.settings.listeners["mqtt"]))
    return connection


def counted(house: House) -> int:
    return house.broker.registry.pool_of("mqtt").clients_bytes


def test_what_is_unsent_counts_and_goes_first() -> None:
    house, sock, other = House(CONFIG), Socket(), Socket()
    connection = welcome(house, stream := Holding(sock))
    sock.incoming.append(connect("reader") + encode_subscribe(1, ["t"]))
    welcome(house, PlainStream(other))  # type: ignore[arg-type]
    other.incoming.append(connect("writer"))
    house.run()
    before = counted(house)
    sock.capacity = len(sock.taken) + 300
    payload = bytes(range(256)) * 20
    other.incoming.append(encode_publish("t", payload))
    house.run()
    assert (stream.unsent, counted(house) - before) == (RECORD_BYTES - 300, RECORD_BYTES - 300)
    assert connection.blocked
    sock.capacity += 200
    house.run()
    assert counted(house) - before == stream.unsent == RECORD_BYTES - 500
    sock.capacity = 1e9
    house.run()
    assert counted(house) == before
    assert bytes(sock.taken).endswith(payload)


def test_what_is_unsent_does_not_count_after_the_end() -> None:
    house, sock = House(CONFIG), Socket()
    connection = welcome(house, stream := Holding(sock))
    sock.incoming.append(connect("reader"))
    house.run()
    sock.capacity = 0
    assert connection.send([bytes(500)], 500) == 500
    assert stream.unsent == connection.unsent_bytes == 500
    connection.close(Reason.ADMIN)
    house.run()
    assert counted(house) == 0


def test_a_stream_that_is_not_ready_is_not_read_and_says_nothing() -> None:
    house, sock = House(CONFIG), Socket()
    connection = welcome(house, stream := Holding(sock, ready=False, head=connect("reader")))
    sock.incoming.append(b"\x16\x03\x01")
    house.run()
    assert len(sock.incoming) == 1, "that is the stream's own affair"
    sock.incoming.clear()
    stream.ready = True  # type: ignore[misc]
    stream.opening.opened()
    house.run()
    assert connection.admitted, "what came with the handshake is read, although no more comes"


def test_an_end_before_the_stream_is_ready() -> None:
    house, sock = House(CONFIG), Socket()
    connection = welcome(house, Holding(sock, ready=False))
    connection.close_gracefully(Reason.SHUTDOWN, "the server is shutting down")
    house.run()
    assert sock.closed
    assert (bytes(sock.taken), house.ends.of("1.2.3.4")[0].reason) == (b"", Reason.SHUTDOWN)


def test_tls_on_a_plain_listener_is_told_apart() -> None:
    house, sock = House(CONFIG), Socket()
    connection = welcome(house, PlainStream(sock))  # type: ignore[arg-type]
    sock.incoming.append(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    house.run()
    assert not connection.open
    (end,) = house.ends.of("1.2.3.4")
    assert end.reason is Reason.PROTOCOL_ERROR
    assert "[listeners.mqtt.tls]" in end.text
