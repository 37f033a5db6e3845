"""Messages that never end, in every protocol: many clients hold little together, and the others go on."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack

import pytest
from tests.server.amqp_stage import House
from tests.server.greedy_stage import Greedy
from tests.server.pretended import Socket
from tests.wire import openwire_frames as frames

from headway.core.base import Reason
from headway.server.amqp1.peer import Amqp1Peer
from headway.server.connections.reassembly import GRANT_S, STRANGER_BYTES, PartialPacket
from headway.server.mqtt.peer import MqttPeer
from headway.server.openwire.peer import OpenWirePeer
from headway.server.stomp.peer import StompPeer
from headway.wire.amqp1 import values as writing
from headway.wire.amqp1.performatives import Attach, Begin, Coordinator, Open, Source, Target
from headway.wire.amqp1.replies import frame, write
from headway.wire.openwire.codes import Type

CLIENTS = 60
PIECES, PIECE_BYTES = 16, 60_000
YES, NO = b"\1", b"\0"


@pytest.fixture
def house() -> House:
    return House()


def stomp(house: House, name: str = "c") -> Greedy:
    return Greedy(house, StompPeer, b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")


def openwire(house: House, name: str = "c") -> Greedy:
    return Greedy(house, OpenWirePeer, frames.wire_format() + frames.connection_info(name))


def amqp1(house: House, name: str = "c") -> Greedy:
    begin = write(0, Begin(None, 0, 1 << 30, 1 << 30, 4095))
    links = b"".join(
        write(0, Attach(f"s{at}", at, False, source=Source(), target=Target("queue://w"),
                               initial_delivery_count=0)) for at in range(20)
    )  # fmt: skip
    return Greedy(house, Amqp1Peer, b"AMQP\0\1\0\0" + write(0, Open(name, None, 65_536, 255)), begin + links)


def mqtt(house: House, name: str = "c") -> Greedy:
    said = name.encode()
    connect = b"\x10" + bytes((12 + len(said),)) + b"\0\4MQTT\4\2\0\0\0" + bytes((len(said),)) + said
    return Greedy(house, MqttPeer, connect)


def transfer(handle: int, number: int, body: bytes, *, first: bool, more: bool) -> bytes:
    fields = [writing.uint(handle), *([writing.uint(number), writing.binary(b"t")] if first else [writing.NULL] * 2),
              writing.uint(0), writing.boolean(True), writing.boolean(more)]  # fmt: skip
    content = frame(0, 0x14, fields)[8:] + body
    return (8 + len(content)).to_bytes(4, "big") + b"\2\0\0\0" + content


def stomp_body(piece: int) -> bytes:
    return (b"" if piece else b"SEND\ndestination:/queue/w\n\n") + b"x" * PIECE_BYTES


def stomp_sized(piece: int) -> bytes:
    return (b"" if piece else b"SEND\ndestination:/queue/w\ncontent-length:4000000\n\n") + b"x" * PIECE_BYTES


def mqtt_packet(piece: int) -> bytes:
    return (b"" if piece else b"\x30\x80\x92\xf4\x01\0\1w") + b"x" * PIECE_BYTES


def openwire_frame(piece: int) -> bytes:
    return (b"" if piece else pack(">iB", 4_000_000, Type.BYTES_MESSAGE)) + b"x" * PIECE_BYTES


def one_link(piece: int) -> bytes:
    return transfer(0, 0, bytes(PIECE_BYTES), first=not piece, more=True)


def many_links(piece: int) -> bytes:
    return transfer(piece, piece, bytes(PIECE_BYTES), first=True, more=True)


def beside_others(piece: int) -> bytes:
    """While a message of one link never ends, others are whole all the time."""
    whole = writing.described(0x75, writing.binary(b"x"))
    begun = transfer(0, 0, bytes(PIECE_BYTES), first=not piece, more=True)
    return begun + transfer(1, piece + 1, whole, first=True, more=False)


WAYS = [
    (mqtt, mqtt_packet), (stomp, stomp_body), (stomp, stomp_sized), (openwire, openwire_frame), (amqp1, one_link),
    (amqp1, many_links), (amqp1, beside_others),
]  # fmt: skip


@pytest.mark.parametrize(("client", "piece_of"), WAYS, ids=lambda way: way.__name__)
def test_messages_that_never_end_hold_a_share_of_the_memory_and_no_more(
    house: House, client: Callable[..., Greedy], piece_of: Callable[[int], bytes]
) -> None:
    greedy = [client(house, f"c{number}") for number in range(CLIENTS)]
    pool = greedy[0].connection.pool
    reassembly = greedy[0].connection.reassembly
    before = pool.clients_bytes
    assert 4 * reassembly.limit_bytes < CLIENTS * PIECES * PIECE_BYTES
    for piece in range(PIECES):
        for one in greedy:
            one.connection.read_bytes = 2 * PIECE_BYTES
            one.sock.incoming.append(piece_of(piece))
        house.run()
    parts = sum(one.connection.partial_bytes for one in greedy)
    assert pool.clients_bytes >= before + parts - 1000
    assert parts <= 1.7 * reassembly.limit_bytes
    good = stomp(house)
    said = good.say(b"SUBSCRIBE\nid:0\ndestination:/queue/good\n\n\0SEND\ndestination:/queue/good\n\nhello\0")
    assert b"hello" in said
    large = stomp(house)
    large.say(b"SUBSCRIBE\nid:0\ndestination:/queue/large\n\n\0")
    large.say(b"SEND\ndestination:/queue/large\n\n" + b"y" * 2_000_000 + b"\0")
    for _ in range(200):
        if large.sock.taken.count(b"y") == 2_000_000:
            break
        house.pass_time(GRANT_S)
    assert large.connection.open
    assert large.sock.taken.count(b"y") == 2_000_000


def test_small_messages_that_never_end_on_many_links_count_with_all_that_is_kept_of_them(house: House) -> None:
    """The delivery tag of each may be as large as a frame."""
    greedy = amqp1(house)
    before = greedy.connection.pool.clients_bytes
    fields = [writing.uint(0), writing.uint(0), writing.binary(bytes(50_000)), writing.uint(0), writing.boolean(True),
              writing.boolean(True)]  # fmt: skip
    greedy.say(b"".join(frame(0, 0x14, [writing.uint(at), *fields[1:]]) for at in range(20)))
    assert greedy.connection.pool.clients_bytes >= before + 20 * 50_000


def test_what_follows_of_a_message_whose_link_the_broker_has_ended_is_skipped(house: House) -> None:
    """It has begun before the client could know: a message before it, which is settled and has no form, ended it."""
    greedy = amqp1(house)
    begun = transfer(0, 0, b"no sections", first=True, more=False) + transfer(0, 1, b"part", first=True, more=True)
    assert b"amqp:" in greedy.say(begun)
    greedy.say(transfer(0, 1, b"more", first=False, more=True) + transfer(0, 1, b"rest", first=False, more=False))
    assert greedy.connection.open
    assert not house.blamed
    whole = writing.described(0x75, writing.binary(b"x"))
    greedy.say(transfer(1, 2, whole, first=True, more=False))
    assert house.stats("w").records == 1


# -- transactions ------------------------------------------------------------------------------------------------------


def stomp_begin(house: House, number: int) -> Greedy:
    one = stomp(house)
    one.say(b"BEGIN\ntransaction:t\n\n\0")
    return one


def stomp_more(one: Greedy, piece: int) -> bytes:
    return one.say(b"SEND\ndestination:/queue/w\ntransaction:t\n\n" + b"x" * PIECE_BYTES + b"\0")


def transaction_id(value: int = 1) -> bytes:
    return YES + b"\x6f" + pack(">q", value) + frames.connection_id()


def openwire_transaction(step: int, value: int = 1) -> bytes:
    return frames.frame(Type.TRANSACTION_INFO, frames.connection_id(), transaction_id(value), bytes((step,)))


def openwire_begin(house: House, number: int) -> Greedy:
    one = openwire(house, f"c{number}")
    one.say(openwire_transaction(0))
    return one


def openwire_more(one: Greedy, piece: int) -> bytes:
    body = bytes(PIECE_BYTES)
    return one.say(frames.message(Type.BYTES_MESSAGE, frames.queue("w"), body, transaction=transaction_id()))


@pytest.mark.parametrize(
    ("begin", "more", "refusal"),
    [(stomp_begin, stomp_more, b"ERROR\n"), (openwire_begin, openwire_more, b"ExceptionResponse")],
    ids=["stomp", "openwire"],
)  # fmt: skip
def test_transactions_without_a_commit_hold_a_share_of_the_memory_and_no_more(
    house: House, begin: Callable[..., Greedy], more: Callable[..., bytes], refusal: bytes
) -> None:
    greedy = [begin(house, number) for number in range(CLIENTS)]
    pool = greedy[0].connection.pool
    answers = b""
    for piece in range(PIECES):
        for one in greedy:
            if one.connection.open:
                answers += more(one, piece)
        assert pool.clients_bytes <= pool.clients_limit
    assert b"besides records" in answers
    good = stomp(house)
    assert b"hello" in good.say(
        b"SUBSCRIBE\nid:0\ndestination:/queue/good\n\n\0SEND\ndestination:/queue/good\n\nhello\0"
    )


def test_a_transaction_that_begins_again_and_again_is_one(house: House) -> None:
    one = openwire(house)
    one.say(openwire_transaction(0))
    before = one.tab["transactions"]
    one.say(openwire_transaction(0) * 100)
    assert one.tab["transactions"] == before
    one.say(openwire_transaction(4))
    assert "transactions" not in one.tab


def test_transactions_of_amqp1_without_a_discharge_hold_a_share_of_the_memory_and_no_more(house: House) -> None:
    """What is too much is refused with its condition, and the link that said it ends."""
    greedy = [amqp1(house, f"c{number}") for number in range(CLIENTS)]
    pool = greedy[0].connection.pool
    declare = writing.described(0x77, writing.described(0x31, writing.list_of([])))
    body = writing.described(0x75, writing.binary(bytes(PIECE_BYTES)))
    answers = b""
    for one in greedy:
        coordinator = Attach("tx", 40, False, source=Source(), target=Coordinator(), initial_delivery_count=0)
        one.say(write(0, coordinator))
        one.say(plain(40, 0, declare))
    for piece in range(PIECES):
        for one in greedy:
            if one.connection.open:
                answers += one.say(plain(piece % 20, piece + 1, body, one.connection.peer_side))
        assert pool.clients_bytes <= pool.clients_limit
    assert b"amqp:resource-limit-exceeded" in answers
    assert b"besides records" in answers
    assert b"hello" in stomp(house).say(
        b"SUBSCRIBE\nid:0\ndestination:/queue/good\n\n\0SEND\ndestination:/queue/good\n\nhello\0"
    )


@pytest.mark.parametrize("how", ["", "closes", "is gone"])
def test_a_discharge_waits_for_room_and_is_dropped_if_its_client_leaves_before(house: House, how: str) -> None:
    one, filler = amqp1(house), stomp(house)
    one.say(write(0, Attach("tx", 40, False, source=Source(), target=Coordinator(), initial_delivery_count=0)))
    one.say(plain(40, 0, writing.described(0x77, writing.described(0x31, writing.list_of([])))))
    peer = one.connection.peer_side
    assert isinstance(peer, Amqp1Peer)
    [txn_id] = peer.transactions
    one.say(plain(0, 1, writing.described(0x75, writing.binary(b"x")), peer))
    house.broker.registry.pools[""].memory_limit = 1_000_000
    filler.say(b"SEND\nreceipt:r\ndestination:/queue/w\n\n%s\0" % (b"x" * 14_000) * 100)
    filled = house.stats("w").records
    discharge = writing.list_of([writing.binary(txn_id), writing.boolean(False)])
    one.say(plain(40, 2, writing.described(0x77, writing.described(0x32, discharge))))
    assert peer.budget.running is not None
    if how == "is gone":
        one.connection.close(Reason.CLIENT_GONE)
    elif how:
        one.send(b"")
        one.send(b"")  # a kernel says it again
    else:
        house.broker.queues.delete(house.queues["w"], house.now())
    house.pass_time(1.0)
    assert peer.budget.running is None
    assert one.connection.open is not bool(how)
    if how:
        assert house.stats("w").records == filled


def plain(handle: int, number: int, body: bytes, peer: object = None) -> bytes:
    """A whole message; of the peer's only transaction, if it is given."""
    state = writing.NULL
    if isinstance(peer, Amqp1Peer):
        [txn_id] = peer.transactions
        state = writing.described(0x34, writing.list_of([writing.binary(txn_id)]))
    fields = [writing.uint(handle), writing.uint(number), writing.binary(b"t"), writing.uint(0), writing.boolean(False),
              writing.boolean(False), writing.NULL, state]  # fmt: skip
    content = frame(0, 0x14, fields)[8:] + body
    return (8 + len(content)).to_bytes(4, "big") + b"\2\0\0\0" + content


# -- before the login --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("behind", [b"", mqtt_packet(0)], ids=["part of a CONNECT", "publishes behind a CONNECT"])
def test_connections_that_have_not_logged_in_are_read_little_and_keep_nobody_out(house: House, behind: bytes) -> None:
    """Publishes: while the clients wait for a turn to log in, what they sent behind waits in the kernel."""
    whole, part = b"\x10\x14\0\4MQTT\4\2\0\0\0\x08stranger", b"\x10\xe0\xd4\3\0\4MQTT" + bytes(50_000)
    opening = whole + behind if behind else part
    house.read_bytes = 1 << 18
    socks = [Socket() for _ in range(200)]
    house.greeting_left = 0  # no turn to log in is left
    connections = [house.accept(sock, peer=MqttPeer) for sock in socks]
    before = connections[0].pool.clients_bytes
    for sock in socks:
        sock.incoming.append(opening)
    for connection in connections:
        connection.read_now()
    held = sum(len(opening) - len(sock.incoming[0]) for sock in socks)
    assert held <= len(socks) * STRANGER_BYTES
    assert not any(connection.admitted for connection in connections)
    assert connections[0].pool.clients_bytes == before


def test_a_client_whose_packet_waited_for_memory_of_strangers_is_read_once_it_has_logged_in(house: House) -> None:
    """Part of a publish came behind its CONNECT while its password was checked."""
    first, second = (house.accept(Socket(), peer=MqttPeer) for _ in range(2))
    strangers = house.strangers
    for connection in (first, second):
        strangers.update(connection, PartialPacket(2000, strangers.limit_bytes, 0), house.now())
    assert list(second.reading_paused_by) == ["memory"]
    second.let_in()
    assert not second.reading_paused_by
    assert not strangers.waiting
    assert second.reassembly is house.reassembly[second.pool]
