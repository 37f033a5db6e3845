"""Connections that have not logged in: one whose client leaves gives its place back, and others make room."""

from __future__ import annotations

import socket
import struct
import zlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from bench.wires.packets import connect, encode_publish, encode_subscribe
from bench.wires.websocket import BINARY, frame, request
from tests.interop.waiting import until
from tests.passwords import cheap_hash
from tests.server import amqp_stage
from tests.server.amqp_stage import House
from tests.server.pretended import Socket

from headway.core.base import Reason
from headway.core.log import Shares
from headway.server.connections import Connection, Hangups, reassembly
from headway.server.connections.connections import SILENT_S, SPEAKING_S, STAGE_LOOKS_MAX
from headway.server.connections.ends import CLIENTS_LINES_MAX, STRANGERS_LINES_A_S, STRANGERS_LINES_MAX, Lines
from headway.server.engine.supervision import SWEEP_S
from headway.server.listener import Listener
from headway.server.mqtt.peer import MqttPeer
from headway.server.protocols import PROTOCOLS
from headway.server.transport import PlainStream, TlsHandshake, TlsStream
from headway.server.transport import byte_stream as acceptor
from headway.server.websocket import CompressedStream, Rules, SharedDeflate, WebSocketStream
from headway.server.websocket.deflate import INFLATE_BYTES
from headway.server.websocket.frames import COMPRESSED, CONTINUATION
from headway.wire.mqtt.packets import Connect, TopicRequest, encode_connect

PLACES = 8
MQTT = f'[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\nconnections_max = {PLACES}\n'
USERS = f'[auth.users]\nann = "{cheap_hash("right")}"\n'


# -- clients that leave -----------------------------------------------------------------------------------------------


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The broker's end of a connection, and the client's."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as far:
        near, _ = server.accept()
        with near:
            near.setblocking(False)
            yield near, far


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


LEAVE: dict[str, Callable[[socket.socket], None]] = {
    "close": socket.socket.close, "half close": lambda sock: sock.shutdown(socket.SHUT_WR), "reset": reset,
}  # fmt: skip


@pytest.mark.parametrize("how", LEAVE)
@pytest.mark.parametrize("unread", [b"", b"x"])
def test_a_hangup_is_found_without_a_read(
    ends: tuple[socket.socket, socket.socket], how: str, unread: bytes
) -> None:
    near, far = ends
    readers: list[Callable[[], None]] = []
    loop: Any = SimpleNamespace(add_reader=lambda _, call: readers.append(call), remove_reader=lambda _: None)
    hangups, calls = Hangups(loop), list[str]()
    hangups.watch(near, lambda: calls.append("watched"))
    far.sendall(unread)
    readers[0]()
    assert not calls, "it is there"
    LEAVE[how](far)

    def found() -> bool:
        readers[0]()
        return bool(calls)

    until(found, 10, "the kernel tells nothing")
    readers[0]()
    assert calls == ["watched"]
    hangups.forget(near)
    hangups.watch(near, lambda: calls.append("again"))
    readers[0]()
    assert calls == ["watched", "again"], "it has left already"
    hangups.forget(near)
    hangups.watch(near, lambda: calls.append("never"))
    hangups.forget(near)
    readers[0]()
    assert calls == ["watched", "again"]
    hangups.close()


def login(client: str = "c") -> bytes:
    return encode_connect(Connect(5, client, True, username="ann", password=b"right"))


def waiting_client(house: House, said: bytes) -> tuple[Connection, Socket]:
    """A client whose password is being checked."""
    house.pretended.hold_tasks = True
    sock = Socket()
    connection = house.accept(sock, "mqtt", MqttPeer)
    sock.incoming.append(said)
    house.run()
    assert "password" in connection.reading_paused_by
    return connection, sock


@pytest.fixture
def asks() -> Iterator[House]:
    house = House(MQTT + USERS)
    yield house
    house.pretended.hold_tasks = False
    house.run()


@pytest.mark.parametrize("error", [0, 104])
def test_a_client_that_leaves_during_its_login_frees_its_place(asks: House, error: int) -> None:
    connection, sock = waiting_client(asks, login())
    sock.incoming.append(b"")
    sock.getsockopt = lambda *_: error  # type: ignore[method-assign]
    asks.pretended_hangups.calls[sock]()
    assert not connection.open
    assert asks.connections.by_listener["mqtt"] == 0
    assert asks.ends.counts == {Reason.CLIENT_GONE: 1}
    assert not asks.pretended_hangups.calls


@pytest.mark.parametrize("apart", [False, True])
def test_what_was_said_before_is_still_published_if_the_login_is_right(asks: House, apart: bool) -> None:
    watcher = Socket()
    asks.accept(watcher, "mqtt", MqttPeer)
    watcher.incoming += [login(client="watcher"), encode_subscribe(1, [TopicRequest("t", 0)])]
    asks.run()
    said = [login(), encode_publish("t", b"last")]
    connection, sock = waiting_client(asks, said[0] if apart else b"".join(said))
    sock.incoming += [*(said[1:] if apart else []), b""]
    asks.pretended_hangups.calls[sock]()
    assert connection.open
    assert list(asks.connections.strangers["mqtt"].left) == [connection]
    asks.pretended.hold_tasks = False
    asks.run()
    assert not connection.open
    assert b"last" in watcher.taken


def test_a_client_that_is_let_in_is_watched_no_more(asks: House) -> None:
    connection, _ = waiting_client(asks, login())
    asks.pretended.hold_tasks = False
    asks.run()
    assert connection.admitted
    assert not asks.pretended_hangups.calls
    assert not asks.connections.strangers["mqtt"]


# -- clients that stay ------------------------------------------------------------------------------------------------


class Door:
    """A listener that is asked for one connection after the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, more: str = "") -> None:
        door: Any = Socket()
        door.getsockname, door.accept = lambda: ("127.0.0.1", 1883), lambda: self.accepts.pop()()
        door.listen = lambda _: None
        monkeypatch.setattr("headway.server.listener.bound", lambda *_: door)
        self.house = House(MQTT + more)
        self.accepts: list[Callable[[], Any]] = []
        self.listener = Listener(self.house, "mqtt", self.house.settings.listeners["mqtt"])
        self.listener.open()
        self.ports = iter(range(1, 100_000))

    def come(self, said: bytes = b"", host: str = "10.0.0.1", after_s: float = SILENT_S) -> Socket:
        self.house.pass_time(after_s)
        sock = Socket()
        self.listener._welcome(sock, f"{host}:{next(self.ports)}")  # type: ignore[arg-type]
        if said:
            sock.incoming.append(said)
            self.house.run()
        return sock


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Door:
    return Door(monkeypatch)


def test_silent_clients_keep_nobody_out(door: Door) -> None:
    silent = [door.come() for _ in range(3 * PLACES)]
    assert [sock.closed for sock in silent] == [True] * 2 * PLACES + [False] * PLACES, "the oldest makes room"
    clients = [door.come(connect(f"c{at}")) for at in range(PLACES)]
    assert all(sock.taken[:1] == b"\x20" for sock in clients)
    assert door.house.connections_refused == 0
    assert door.house.ends.of("10.0.0.1")[0].text == (
        "the client had not logged in after 4 s, and made room for another one: listeners.mqtt has its 8 "
        "connections already"
    )


def test_clients_that_come_all_at_once_do_not_take_each_others_places(door: Door) -> None:
    """Each would be closed before its login is read."""
    first = [door.come(after_s=0) for _ in range(PLACES)]
    late = [door.come(after_s=0) for _ in range(PLACES)]
    for sock in (*first, *late):
        sock.incoming.append(connect(f"c{id(sock)}"))
    door.house.pretended.now += SILENT_S  # the loop was late
    assert door.come(after_s=-SILENT_S).closed, "all of them have said something that was not read yet"
    door.house.run()
    assert all(sock.taken[:1] == b"\x20" for sock in first)
    assert all(sock.closed for sock in late)


def test_clients_that_have_logged_in_never_make_room(door: Door) -> None:
    clients = [door.come(connect(f"c{at}")) for at in range(PLACES)]
    assert door.listener.trouble()
    late = door.come()
    assert late.closed
    assert not any(sock.closed for sock in clients)
    assert door.house.connections_refused == 1
    clients[0].incoming.append(b"")
    door.house.run()
    door.come()
    assert not door.listener.trouble(), "a silent one would make room"


def test_silent_clients_go_before_those_that_have_begun(door: Door) -> None:
    speaking = [door.come(connect(f"c{at}")[:5], after_s=0) for at in range(PLACES - 1)]
    silent = door.come(after_s=0)
    door.come(connect("c"))
    assert silent.closed
    assert door.come(connect("d")).closed, "they have begun a moment ago"
    assert not any(sock.closed for sock in speaking)
    door.come(connect("d"), after_s=SPEAKING_S)
    assert [sock.closed for sock in speaking] == [True] + [False] * (PLACES - 2)


def test_clients_that_have_left_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door(monkeypatch, USERS)
    silent = [door.come(after_s=0.1) for _ in range(PLACES - 1)]
    door.house.pretended.hold_tasks = True
    gone = door.come(login() + encode_publish("t", b"x"))
    gone.incoming.append(b"")
    door.house.pretended_hangups.calls[gone]()
    door.come()
    assert gone.closed
    assert not any(sock.closed for sock in silent)
    door.house.pretended.hold_tasks = False
    door.house.run()


def test_a_network_that_has_most_places_takes_its_own(door: Door) -> None:
    others = [door.come(host=f"10.0.1.{at}", after_s=0) for at in range(3)]
    flood = [door.come(host="10.0.0.1", after_s=0) for _ in range(PLACES - 3)]
    flood += [door.come(host="10.0.0.1", after_s=SILENT_S if at % 5 == 0 else 0.0) for at in range(15)]
    assert not any(sock.closed for sock in others)
    assert sum(not sock.closed for sock in flood) == PLACES - len(others)
    assert door.house.connections_refused == 0
    assert STAGE_LOOKS_MAX >= PLACES


def test_silent_clients_use_up_no_descriptors(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are descriptors for 4 clients."""
    came: list[Socket] = []

    def accept() -> tuple[Any, tuple[str, int]]:
        came.append(Socket())
        came[-1].setblocking = lambda _: None  # type: ignore[attr-defined]
        return came[-1], ("10.0.0.1", len(came))

    door.listener._acceptor._files_max = 4
    monkeypatch.setattr(acceptor, "lowest_free_descriptor", lambda: sum(not sock.closed for sock in came))
    door.accepts = [accept] * 6
    door.listener._acceptor._accept_some()
    door.listener._acceptor._accept_some()
    assert (len(came), bool(door.listener._acceptor.paused)) == (4, True), "they have their time"
    door.house.pretended.now += SILENT_S
    while door.accepts:  # else the loop does not call
        door.listener._acceptor._accept_some()
    assert [sock.closed for sock in came] == [True, True, False, False, False, False]
    for number, sock in enumerate(came[2:]):
        sock.incoming.append(connect(f"c{number}"))
    door.house.run()
    door.accepts = [accept]
    door.listener._acceptor._accept_some()
    assert len(came) == 6
    assert door.listener._acceptor.paused


# -- parts of packets -------------------------------------------------------------------------------------------------

PART_BYTES = 3000
HELD = 10
"""As many parts may all strangers hold."""
PARTS: dict[str, bytes] = {
    "mqtt": b"\x10\xa0\x1f" + b"x" * PART_BYTES, "websocket": b"GET /" + b"x" * PART_BYTES,
    "tls": b"\x16\x03\x01\x20\x00" + b"x" * PART_BYTES,
}  # fmt: skip


def part_stream(kind: str, house: House) -> Callable[[Any], Any]:
    rules = Rules(("/mqtt",), None, {"mqtt": "mqtt"}, "mqtt")
    context: Any = None
    return {
        "mqtt": PlainStream,
        "websocket": lambda sock: WebSocketStream(PlainStream(sock), rules, PROTOCOLS, house.loop),
        "tls": lambda sock: TlsStream(TlsHandshake(sock, context, house.handshakes, "", 1000, "mqtts://here")),
    }[kind]


@pytest.fixture
def few_parts(asks: House, monkeypatch: pytest.MonkeyPatch) -> House:
    most = HELD * (PART_BYTES + 10)
    monkeypatch.setattr(reassembly, "HELD_SHARE", most / asks.broker.registry.pool_of("").clients_limit)
    return asks


def part(house: House, said: bytes) -> Socket:
    sock = Socket()
    house.accept(sock, "mqtt", MqttPeer)
    sock.incoming.append(said)
    house.run()
    return sock


@pytest.mark.parametrize("kind", PARTS)
def test_what_strangers_hold_has_an_end(few_parts: House, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over all listeners and kinds of streams; those that have held something for longest make room."""
    monkeypatch.setattr(amqp_stage, "PlainStream", part_stream(kind, few_parts))
    before = few_parts.broker.registry.pool_of("").clients_bytes
    socks = [part(few_parts, PARTS[kind]) for _ in range(3 * HELD)]
    assert [sock.closed for sock in socks] == [True] * 2 * HELD + [False] * HELD
    assert PART_BYTES * HELD <= few_parts.strangers.held_bytes <= few_parts.strangers.held_bytes_max
    assert few_parts.broker.registry.pool_of("").clients_bytes == before
    ended = few_parts.ends.of("127.0.0.1")[0]
    assert (ended.reason, ended.text[:70]) == (
        Reason.CONNECT_TIMEOUT, "the client had sent part of a packet only, and made room for others: 1")
    for sock in socks:
        sock.incoming.append(b"")
    few_parts.run()
    assert few_parts.strangers.held_bytes == 0


def deflated(data: bytes, *, final: bool) -> bytes:
    made = zlib.compressobj(wbits=-15)
    framed = frame(made.compress(data) + made.flush(zlib.Z_SYNC_FLUSH), BINARY, final=final)
    return bytes((framed[0] | COMPRESSED,)) + framed[1:]


OFFERED = request("/mqtt", "localhost", "mqtt", "Sec-WebSocket-Extensions: permessage-deflate")[0]


@pytest.fixture
def compressing(asks: House, monkeypatch: pytest.MonkeyPatch) -> House:
    pool, rules = asks.broker.registry.pool_of(""), Rules(("/mqtt",), None, {"mqtt": "mqtt"}, "mqtt", compression=True)
    shared = SharedDeflate(pool, asks.now)
    monkeypatch.setattr(amqp_stage, "PlainStream", lambda sock: CompressedStream(
        PlainStream(sock), rules, PROTOCOLS, asks.loop, shared))  # fmt: skip
    return asks


def test_what_zlib_holds_of_messages_of_strangers_has_an_end(
    compressing: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = compressing.broker.registry.pool_of("")
    before = pool.clients_bytes
    monkeypatch.setattr(reassembly, "HELD_SHARE", HELD * (INFLATE_BYTES + 100) / pool.clients_limit)
    socks = [part(compressing, OFFERED + deflated(login()[:20], final=False)) for _ in range(3 * HELD)]
    assert [sock.closed for sock in socks] == [True] * 2 * HELD + [False] * HELD
    assert compressing.strangers.held_bytes >= HELD * INFLATE_BYTES
    socks[-1].incoming.append(frame(b"", CONTINUATION))
    compressing.run()
    assert compressing.strangers.held_bytes < HELD * INFLATE_BYTES, "it is freed, though nothing came of the message"
    assert pool.clients_bytes == before


def test_what_zlib_holds_of_a_clients_message_is_on_its_tab_until_it_is_whole(compressing: House) -> None:
    client = part(compressing, OFFERED + deflated(login(), final=True))
    pool = compressing.broker.registry.pool_of("")
    before = pool.clients_bytes
    client.incoming.append(deflated(b"\xc0\0", final=False))
    compressing.run()
    assert pool.clients_bytes == before + INFLATE_BYTES
    assert compressing.broker.registry.sessions["c"].tab.amounts["part_packets"] == INFLATE_BYTES
    client.incoming.append(frame(b"", CONTINUATION))
    compressing.run()
    assert pool.clients_bytes == before
    client.incoming += [deflated(b"\xc0\0", final=False), b""]
    compressing.run()
    assert client.closed
    assert pool.clients_bytes < before


def test_a_client_is_told_that_there_is_no_room_for_its_message_that_is_not_whole(compressing: House) -> None:
    client = part(compressing, OFFERED + deflated(login(), final=True))
    tab = compressing.broker.registry.sessions["c"].tab
    tab.other_shares = Shares((tab.bytes + INFLATE_BYTES / 2) / tab.pool.clients_limit, 1.0)
    client.incoming.append(deflated(b"\xc0\0", final=True))
    compressing.run()
    assert not client.closed, "it has come whole"
    client.incoming.append(deflated(b"\xc0\0", final=False))
    compressing.run()
    assert compressing.ends.of("c")[0].reason is Reason.CLIENT_MEMORY


def test_a_login_in_two_pieces_is_let_in_while_strangers_hold_all_they_may(few_parts: House) -> None:
    for _ in range(2 * HELD):
        part(few_parts, PARTS["mqtt"])
    few_parts.pretended.hold_tasks = False
    client = part(few_parts, login()[:5])
    part(few_parts, PARTS["mqtt"])
    client.incoming.append(login()[5:])
    few_parts.run()
    assert client.taken[:1] == b"\x20"


def test_clients_whose_passwords_are_checked_keep_what_they_said(few_parts: House) -> None:
    """Part of a publish came behind the CONNECT. Others that send parts meanwhile make room; so do those whose logins
    come with parts when there is no more room at all."""
    few_parts.pretended.hold_tasks = True
    said = encode_publish("t", b"x" * PART_BYTES)[:-5]
    clients = [part(few_parts, login(f"c{at}") + said) for at in range(HELD)]
    others = [part(few_parts, PARTS["mqtt"]) for _ in range(3)]
    late = part(few_parts, login("late") + said)
    few_parts.run()
    assert all(sock.closed for sock in (*others, late))
    assert not any(sock.closed for sock in clients)
    few_parts.pretended.hold_tasks = False
    few_parts.run()
    assert all(sock.taken[:1] == b"\x20" for sock in clients)
    assert few_parts.strangers.held_bytes == 0


# -- the log ----------------------------------------------------------------------------------------------------------


def test_the_log_has_only_so_many_lines_about_clients_that_are_not_let_in(
    asks: House, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "headway")
    client = part(asks, login())
    for _ in range(STRANGERS_LINES_MAX + 30):
        part(asks, b"\0")
    client.incoming.append(b"")
    asks.run()
    assert caplog.text.count("not admitted after") == STRANGERS_LINES_MAX
    assert "disconnected after" in caplog.text, "those who were let in have a line each"
    asks.pass_time(SWEEP_S)
    asks.pass_time(SWEEP_S)
    assert caplog.text.count("30 more connections were not admitted: protocol_error 30") == 1
    part(asks, b"\0")
    assert caplog.text.count("not admitted after") == STRANGERS_LINES_MAX + 1
    for _ in range(3 * STRANGERS_LINES_A_S):
        part(asks, b"\0")
    assert caplog.text.count("not admitted after") == STRANGERS_LINES_MAX + 2 * STRANGERS_LINES_A_S


def test_clients_that_come_and_go_all_the_time_fill_no_disk(asks: House, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "headway")
    asks.ends.clients_lines = Lines(2, 10, "clients disconnected")
    for _ in range(30):
        part(asks, login()).incoming.append(b"")
        asks.run()
    part(asks, b"\0")
    assert caplog.text.count("disconnected after") == 10
    assert "not admitted after" in caplog.text, "strangers have lines of their own, and clients cannot use them up"
    for _ in range(3):
        asks.pass_time(SWEEP_S)
    assert caplog.text.count("20 more clients disconnected: client_gone 20") == 1
    assert CLIENTS_LINES_MAX >= 10_000, "as many as are cut when a network fails"
